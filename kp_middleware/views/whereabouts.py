"""Where a trace went, and what was taken out of it: pure functions of its row."""

from collections.abc import Mapping

from kp_middleware.storage import Row


def whereabouts(trace: Row) -> str:
    """Where the trace went and why, in one sentence."""
    outbox = trace["outbox"]
    if trace["state"] == "paused":
        return "waits for a person, or for the next turn of its thread"
    if outbox is None:
        return _kept_here(trace)
    match outbox["state"]:
        case "sent":
            return f"sent to {outbox['registry']} at {outbox['sent_at']} as {outbox['remote_id']}"
        case "pending" | "sending":
            after = f" after {outbox['last_error']}" if outbox["last_error"] else ""
            return f"waits to be sent to {outbox['registry']}{after}"
        case state:
            return f"{state}: {outbox['reason']}"


def taken_out(trace: Row) -> Mapping[str, int]:
    """What redaction took out: of what leaves, else of what is kept here; counts by kind."""
    leaving: Mapping[str, int] = (trace["outbox"] or {}).get("redactions") or {}
    return leaving or trace["redactions"]


def _kept_here(trace: Row) -> str:
    match trace["state"]:
        case "recorded":
            return "kept here, not scored yet"
        case "incomplete":
            why = f" ({trace['error_type']})" if trace["error_type"] else ""
            return f"kept here, not scored: the run did not come to its end{why}"
        case _:
            return f"kept here: {trace['reason']}"
