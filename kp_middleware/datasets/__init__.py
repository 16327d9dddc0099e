"""Datasets for training and evaluation, made of stored runs in the formats of others."""

from kp_middleware.datasets._dataset import Dataset, Entry, Selection
from kp_middleware.datasets._formats import FORMATS, Skill, skill_of

__all__ = ["FORMATS", "Dataset", "Entry", "Selection", "Skill", "skill_of"]
