"""The request body for the registry."""

import re

from pydantic_core import to_json

from kp_middleware.traces import ReasoningTrace

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")  # PostgreSQL fails on both: always a 500


def payload(trace: ReasoningTrace, *, score: float, agent_id: str | None) -> bytes:
    """Return the exact bytes to post: the trace and its score as UTF-8 JSON without nulls.

    U+0000 and lone surrogates, which no registry can store, become U+FFFD.

    Args:
        trace: The redacted trace.
        score: From 0 to 1, becomes ``metadata.quality_score``.
        agent_id: As registered, or the unit can never be deleted there; None keeps the trace's own.

    Raises:
        ValueError: If the score is not from 0 to 1, or ``input`` cannot be represented in JSON.
    """
    if not 0 <= score <= 1:
        raise ValueError(f"a score is from 0 to 1, not {score}")
    named = {} if agent_id is None else {"agent_id": agent_id}
    metadata = trace.metadata.model_copy(update={"quality_score": float(score), **named})
    document = trace.model_copy(update={"metadata": metadata}).model_dump()
    return to_json(_storable(document), inf_nan_mode="null")


def _storable(value: object) -> object:
    match value:
        case str():
            return _UNSTORABLE.sub("\ufffd", value)
        case list() | tuple():
            return [_storable(item) for item in value]
        case dict():
            return {_storable(key): _storable(item) for key, item in value.items()}
        case _:
            return value
