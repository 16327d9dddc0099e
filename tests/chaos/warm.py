"""Loads and compiles what every process needs, once, in the server that forks them. No threads."""

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2  # noqa: F401 - for those that send
import working_process
from many_traces import random_trace

from kp_middleware import KnowledgePulse
from kp_middleware.testing import StandInEmbedder

assert working_process

with (
    TemporaryDirectory() as folder,
    KnowledgePulse(db=Path(folder) / "kp.db", embedder=StandInEmbedder(), sync=True) as kp,
):
    kp.submit(random_trace(random.Random(0)))
