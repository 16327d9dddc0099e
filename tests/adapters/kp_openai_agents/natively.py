"""What OpenAI's Agents SDK told its tracing processor, played again."""

from types import SimpleNamespace


class Plain(SimpleNamespace):
    """An object of the SDK, as a pydantic model gives itself."""

    def model_dump(self, **_):
        return vars(self)


def data_of(event):
    told = dict(event["data"])
    if told.get("response"):
        response = {name: one for name, one in told["response"].items() if name != "<class>"}
        response["output"] = [Plain(**item) for item in response.get("output") or []]
        told["response"] = SimpleNamespace(**response)
    exported = event["export"]["span_data"]
    told["type"] = exported["type"]
    if exported["type"] == "custom" and "data" not in told:
        told["data"] = exported["data"]
    return SimpleNamespace(**told)


def play_natively(document, processor):
    """Tell a processor all events, in order."""
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
