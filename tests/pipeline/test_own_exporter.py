"""Anything that takes one item can be put in the registry's place."""

import json
import sqlite3
from contextlib import closing

import pytest

from kp_middleware import KnowledgePulse, current_trace
from kp_middleware.errors import RegistryRejectedError
from kp_middleware.export import Receipt
from kp_middleware.testing import StandInEmbedder


@pytest.fixture
def record(db):
    """Records some runs of an agent for an exporter; the rows of the outbox."""

    def run(exporter, *, count=1, patience_s=20.0, **settings):
        with KnowledgePulse(
            db=db, embedder=StandInEmbedder(), exporter=exporter, **{"threshold": 0.1} | settings
        ) as kp:
            for number in range(count):
                kp.capture(_answer)(f"question {number} of anna@example.org")
            kp.flush(patience_s)
        with closing(sqlite3.connect(db)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute("SELECT * FROM outbox")]

    return run


def _answer(question):
    current_trace().thought(question)
    current_trace().outcome(confidence=1.0)
    return "42"


def test_a_list_takes_what_cleared_redacted_and_without_a_key(record):
    exported = []

    rows = record(exported.append, count=3)

    documents = [json.loads(item.body) for item in exported]
    assert [row["state"] for row in rows] == ["sent"] * 3
    assert {row["registry"] for row in rows} == {"exporter list.append"}
    assert [document["metadata"]["quality_score"] >= 0.1 for document in documents] == [True] * 3
    assert "anna@example.org" not in str(exported)


@pytest.mark.parametrize("settings", [{"threshold": 1.0}, {"visibility": "private"}])
def test_what_did_not_clear_or_is_private_is_not_exported(record, settings):
    exported = []

    rows = record(exported.append, **settings)

    assert (rows, exported) == ([], [])


def test_an_exporter_s_receipt_is_kept(record):
    [row] = record(lambda item: Receipt(f"mine-{item.trace_seq}"))

    assert (row["state"], row["remote_id"], row["http_status"]) == ("sent", "mine-1", None)


def test_what_an_exporter_rejects_stays_with_its_reason(record):
    def reject(_):
        raise RegistryRejectedError(400, "no cats")

    [row] = record(reject)

    assert (row["state"], row["reason"]) == ("rejected", "no cats")


def test_an_exporter_that_fails_is_called_again_later_and_harms_no_agent(record):
    def fail(_):
        raise ZeroDivisionError

    [row] = record(fail, patience_s=1.0)

    assert row["state"] == "pending"
    assert "raised ZeroDivisionError" in row["last_error"]


def test_what_waits_for_the_registry_is_not_taken_by_an_exporter(record):
    exported = []
    record(None, registry_url="http://127.0.0.1:9", api_key="kp_1", patience_s=0.5)

    waiting, sent = record(exported.append)

    assert (waiting["registry"], waiting["state"]) == ("http://127.0.0.1:9", "pending")
    assert (sent["state"], len(exported)) == ("sent", 1)


def test_a_wrong_setting_keeps_an_exporter_from_getting_anything(record, monkeypatch):
    monkeypatch.setenv("KP_REDACT_DENY", "/a/,b")
    exported = []

    record(exported.append)

    assert exported == []
