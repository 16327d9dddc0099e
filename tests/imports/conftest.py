"""Files in the formats of other tools, and what their readers make of them."""

import json

import pytest

from kp_middleware.imports import ImportContext, RunDefaults, read_runs


@pytest.fixture
def read(tmp_path):
    """Read a file in a format; returns the recorded runs and the context."""

    def of(format_, content, **how):
        path = tmp_path / "sample"
        content = content if isinstance(content, str | bytes) else json.dumps(content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        context = ImportContext(format_, at_s=1_780_000_000.0, **how)
        runs = {run.id: run for run in read_runs(path, context)}
        for id in context.retracted:
            runs.pop(id, None)
        recorded = [run.to_recorded(RunDefaults()) for run in runs.values()]
        return [run for run in recorded if run is not None], context

    return of
