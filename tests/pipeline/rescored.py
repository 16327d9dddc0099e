"""Runs that are scored, and scored anew: what several tests of rescoring need."""

import random
from contextlib import closing
from zlib import crc32

import numpy as np

from kp_middleware import ReasoningTrace, Settings, Step
from kp_middleware.database import connect
from kp_middleware.pipeline import Rescoring
from kp_middleware.storage import SqliteStore
from kp_middleware.testing import StandInEmbedder

KEYED = {
    "api_key": "kp_0123456789abcdef0123456789abcdef",
    "registry_url": "https://registry.example",
    "agent_id": "agent-1",
}
_WORDS = [
    *("flight", "hotel", "refund", "invoice", "train", "seat"),
    *("bill", "map", "tax", "ticket", "name", "date"),
]
_CHANGES_BY_THEMSELVES = {"decided_at", "scored_ms"}


class OtherEmbedder(StandInEmbedder):
    """Another model: it hears beginnings of words alone."""

    name = "other"

    def embed(self, text, /):
        self.asked.append(text)
        vector = np.zeros(384, np.float32)
        for word in text.casefold().split():
            vector[crc32(word[:1].encode()) % 384] += 1
        return vector / np.linalg.norm(vector)


def traces(count, *, seed=1, domain="general", **facts):
    """Runs that repeat one another more or less."""
    luck = random.Random(seed)
    return [_trace(luck, {"domain": domain, **facts}) for _ in range(count)]


def _trace(luck, facts):
    task = " ".join(luck.choices(_WORDS, k=4))
    steps = [
        Step(step_id=0, type="thought", content=task),
        Step(step_id=1, type="observation", output_summary="done"),
    ]
    return ReasoningTrace.of(task, steps, **{"confidence": round(luck.random(), 3), **facts})


def score_in_turn(pulse, runs, **settings):
    """Scores runs one after another, in a pipeline that ends."""
    with pulse(**{"sync": True, **settings}) as kp:
        for run in runs:
            kp.submit(run)
        kp.flush()


def rescore(db, embedder, *, domain=None, since=None, dry_run=False, steps=None, **settings):
    """Scores the runs of a file anew, or only so many steps of it; returns what it counted."""
    with closing(connect(db, read_only=dry_run)) as connection:
        rescoring = Rescoring(
            SqliteStore(connection),
            Settings(db=db, **settings),
            embedder,
            domain=domain,
            since=since,
            dry_run=dry_run,
        )
        for done, _ in enumerate(rescoring.steps(), start=1):
            if done == steps:
                break
        return rescoring


def contents(connection):
    """All that the file holds, by table, without the times of the clock on the wall."""
    return {table: rows(connection, table) for table in ("traces", "vectors", "outbox", "meta")}


def rows(connection, table):
    cursor = connection.execute(f"SELECT * FROM {table} ORDER BY 1")
    names = [column[0] for column in cursor.description]
    return [
        {n: v for n, v in zip(names, row, strict=True) if n not in _CHANGES_BY_THEMSELVES}
        for row in cursor
    ]
