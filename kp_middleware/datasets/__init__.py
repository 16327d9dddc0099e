"""Datasets for training and evaluation, exported from stored runs in the formats of other tools."""

from kp_middleware.datasets._dataset import Dataset, Selection
from kp_middleware.datasets._formats import SUFFIXES

__all__ = ["SUFFIXES", "Dataset", "Selection"]
