"""Files in the formats of other tools, and what their readers make of them."""

import json
from pathlib import Path

import pytest

from kp_middleware.imports import ImportContext, RunDefaults, read_runs


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
