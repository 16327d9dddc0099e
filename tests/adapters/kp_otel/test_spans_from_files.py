"""What the collector kept of real frameworks becomes the runs that are recorded live."""

import json

import pytest
from played import START_NS, play
from told_runs import FOLDER, Book, load, names, told

from kp_middleware.imports import ImportContext, RunDefaults, read_runs
from kp_otel import KPSpanProcessor

DUMPS = [name for name in names() if not name.startswith(("crewai_native", "openai_agents_native"))]


@pytest.mark.skipif(not FOLDER.exists(), reason="the shared material is not here")
def test_what_the_collector_kept_of_real_frameworks_is_what_is_recorded_live(tmp_path):
    path = tmp_path / "otlp.jsonl"
    compared = 0
    for name in DUMPS:
        document = load("dumps", name)
        if document["never_ended"]:
            continue
        live = Book()
        processor = KPSpanProcessor(live)
        play(document, processor)
        processor.shutdown()

        lines = [json.dumps(as_otlp(span)) for span in reversed(document["spans"])]
        path.write_text("\n".join(lines))
        found = [run.to_recorded(RunDefaults()) for run in read_runs(path, ImportContext("otlp"))]

        runs = [run for run in found if run is not None]
        runs.sort(key=lambda run: run.trace.metadata.created_at)
        assert [told(run) for run in runs] == [told(run) for run in live.runs], name
        compared += len(runs)
    assert compared > 60


def as_otlp(span):
    def told(attributes):
        return [{"key": key, "value": any_value(value)} for key, value in attributes.items()]

    codes = {"UNSET": 0, "OK": 1, "ERROR": 2}
    status = {"code": codes[span["status"]["code"]], "message": span["status"]["description"]}
    one = {
        "traceId": "07",
        "spanId": span["span"],
        "parentSpanId": span["parent"] or "",
        "name": span["name"],
        "startTimeUnixNano": str(START_NS + round(span["start_ms"] * 1e6)),
        "endTimeUnixNano": str(START_NS + round(span["end_ms"] * 1e6)),
        "attributes": told(span["attributes"]),
        "events": [
            {"name": event["name"], "attributes": told(event["attributes"])}
            for event in span["events"]
        ],
        "status": status,
    }
    scopes = [{"scope": {"name": span["scope"]["name"]}, "spans": [one]}]
    return {"resourceSpans": [{"scopeSpans": scopes}]}


def any_value(value):
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
        case list():
            return {"arrayValue": {"values": [any_value(one) for one in value]}}
    return {}
