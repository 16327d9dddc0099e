"""Loads what every pod needs, once, in the server that forks them. No threads."""

from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2  # noqa: F401 - for those that send
import psycopg  # noqa: F401
from pods import run_of

from kp_middleware import KnowledgePulse
from kp_middleware.testing import StandInEmbedder

with (
    TemporaryDirectory() as folder,
    KnowledgePulse(db=Path(folder) / "kp.db", embedder=StandInEmbedder(), sync=True) as kp,
):
    kp.submit(run_of(0))
