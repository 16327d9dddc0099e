"""A plugin of pytest: how each test ended, as JSON in the file that ``OUTCOMES`` names."""

import json
import os
from pathlib import Path

_outcomes: dict[str, str] = {}


def pytest_runtest_logreport(report):
    tells = report.when == "call" or not report.passed
    if tells and _outcomes.get(report.nodeid) != "failed":
        _outcomes[report.nodeid] = report.outcome


def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):  # of xdist: it reports to the first process
        Path(os.environ["OUTCOMES"]).write_text(json.dumps(_outcomes))
