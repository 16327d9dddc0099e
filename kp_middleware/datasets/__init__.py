"""Datasets for training and evaluation, made of stored runs in the formats of others."""

from kp_middleware.datasets._dataset import Dataset, Picked
from kp_middleware.datasets._formats import SUFFIXES, skill_of

__all__ = ["SUFFIXES", "Dataset", "Picked", "skill_of"]
