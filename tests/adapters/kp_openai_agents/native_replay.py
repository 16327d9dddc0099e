"""Recorded events of OpenAI's Agents SDK, sent to a tracing processor again."""

from types import SimpleNamespace


class SdkObject(SimpleNamespace):
    """An object of the SDK, as a pydantic model gives itself."""

    def model_dump(self, **_):
        return vars(self)


def data_of(event):
    data = dict(event["data"])
    if data.get("response"):
        response = {name: one for name, one in data["response"].items() if name != "<class>"}
        response["output"] = [SdkObject(**item) for item in response.get("output") or []]
        data["response"] = SimpleNamespace(**response)
    exported = event["export"]["span_data"]
    data["type"] = exported["type"]
    if exported["type"] == "custom" and "data" not in data:
        data["data"] = exported["data"]
    return SimpleNamespace(**data)


def replay(document, processor):
    """Send a processor all events, in order."""
    for event in document["events"]:
        exported = event["export"]
        if event["event"].startswith("trace"):
            trace = SimpleNamespace(trace_id=exported["id"], group_id=exported["group_id"])
            getattr(processor, f"on_{event['event']}")(trace)
            continue
        names = ("trace_id", "parent_id", "started_at", "ended_at", "error")
        span = SimpleNamespace(
            span_id=exported["id"],
            span_data=data_of(event),
            **{name: exported[name] for name in names},
        )
        getattr(processor, f"on_{event['event']}")(span)
