"""Files in the formats of other tools, and what their readers make of them."""

import json
import sys
from collections import deque
from contextlib import closing
from itertools import chain
from pathlib import Path

import pytest

from kp_middleware import Settings
from kp_middleware.imports import ImportContext, RunDefaults, read_runs
from kp_middleware.pipeline import Import, ImportRequest
from kp_middleware.storage import SqliteStore
from kp_middleware.testing import StandInEmbedder

sys.path.append(str(Path(__file__).parents[1] / "adapters"))


@pytest.fixture
def read(tmp_path):
    """Read a file, or what is to be in it; returns the recorded runs and the context."""

    def of(format_, content, **how):
        path = content if isinstance(content, Path) else tmp_path / "sample"
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif path is not content:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        context = ImportContext(format_, at_s=1_780_000_000.0, path=path, **how)
        runs = {run.id: run for run in read_runs(path, context)}
        for id in context.retracted:
            runs.pop(id, None)
        recorded = [run.to_recorded(RunDefaults()) for run in runs.values()]
        return [run for run in recorded if run is not None], context

    return of


@pytest.fixture
def import_runs():
    """Import files into a database, as the command does; returns the counts."""

    def of(db, format_, *paths, **how):
        wanted = ImportRequest.from_paths(format_, paths, **how)
        with (
            closing(SqliteStore.at(db)) as store,
            Import(store, Settings(db=db), StandInEmbedder(), wanted) as importing,
        ):
            deque(chain(importing.read(), importing.write()), maxlen=0)
            return importing.result

    return of
