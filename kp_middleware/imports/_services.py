"""LangSmith's runs and Langfuse's observations: spans with an input and an output, one a line."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

from kp_middleware.imports._run import Book, SourceRun, mean_verdict
from kp_middleware.imports._spans import SpanFormat, Told, field, gathered, named, run_of
from kp_middleware.spans.dialects import kind_of, read
from kp_middleware.spans.fields import (
    Fields,
    arguments,
    fields,
    first_text,
    name,
    objects,
    parsed,
    text,
)
from kp_middleware.spans.held_span import Kind, Problem, Reading, model_reading
from kp_middleware.spans.messages import last_text, messages_in, said_in

_SAYS_IT: Final = ("input", "question", "query", "objective", "task", "prompt", "text", "topic")
_ANSWERS: Final = ("output", "answer", "result", "response", "generation", "summary", "text")

_RUN_TYPES: Final[dict[str, Kind]] = {"llm": "model", "tool": "tool", "retriever": "retriever"}
_MODELS: Final = ("ls_model_name", "model", "model_name")
_THREADS: Final = ("thread_id", "session_id", "conversation_id")

_STARTS: Final = ("start_time", "startTime", "timestamp")
_END: Final = ("end_time", "endTime")
_PARENT: Final = ("parent_observation_id", "parentObservationId")
_TYPES: Final[dict[str, Kind]] = {
    "AGENT": "agent",
    "GENERATION": "model",
    "RETRIEVER": "retriever",
    "TOOL": "tool",
}


def _metadata(row: Fields) -> Fields:
    return fields(fields(row.get("extra")).get("metadata"))


def _agent(row: Fields) -> str | None:
    return name(_metadata(row).get("lc_agent_name"))


def _run(row: Fields) -> Told:
    """Tell a run of LangSmith; a chain is an agent where it is outermost, or another agent's."""
    metadata, agent, parent = _metadata(row), _agent(row), name(row.get("parent_run_id"))
    kind = _RUN_TYPES.get(text(row.get("run_type")), "chain")
    if kind == "chain" and (parent is None or (agent and row["around"] != agent)):
        kind = "agent"
    told = fields(fields(row.get("outputs")).get("usage_metadata"))
    usage = told or fields(metadata.get("usage_metadata"))
    invoked = fields(fields(row.get("extra")).get("invocation_params"))
    return kind, partial(
        _reading,
        kind,
        agent or "" if kind == "agent" else named(row),
        row.get("inputs"),
        row.get("outputs"),
        model=first_text({**invoked, **metadata}, *_MODELS) or None,
        used=(
            usage.get("input_tokens", row.get("prompt_tokens")),
            usage.get("output_tokens", row.get("completion_tokens")),
        ),
        error=name(row.get("error")),
        conversation=first_text(metadata, *_THREADS) or None,
    )


_LANGSMITH: Final = SpanFormat(
    _run, ("trace_id", "id"), ("parent_run_id",), ("dotted_order", "start_time")
)


def read_langsmith(values: Iterable[object], book: Book) -> Iterator[SourceRun]:
    """Yield the run of each trace, as ``list_runs`` or the command line of LangSmith write it."""
    rows = (
        row if "run_type" in row or name(row.get("trace_id")) else {} for row in map(fields, values)
    )
    for key, found in gathered(rows, _LANGSMITH, book):
        agents = {name(row.get("id")): _agent(row) for row in found}
        for row in found:
            row["around"] = agents.get(name(row.get("parent_run_id")))
        said = (one for row in found for one in fields(row.get("feedback_stats")).values())
        success = mean_verdict(fields(one).get("avg") for one in said)
        yield from run_of(key, found, _LANGSMITH, book, success=success)


def _observations(values: Iterable[object]) -> Iterator[object]:
    """Yield the observations themselves; the JSON of a trace has them in a list."""
    for value in values:
        document = fields(value)
        document = {**document, **fields(document.get("trace"))}
        if "observations" not in document:
            yield value
            continue
        inside, root = objects(document["observations"]), document.get("id")
        end = max((text(field(one, _END)) for one in inside), default="")
        own = {"observations": None, "trace_id": root, "type": "SPAN", "end_time": end}
        yield {**document, **own}
        for one in inside:
            yield {**one, "parent_observation_id": field(one, _PARENT) or root}


def _observation(row: Fields) -> Told:
    told = fields(fields(parsed(row.get("metadata"))).get("attributes"))
    kind = kind_of(told) or _TYPES.get(text(row.get("type")), "chain")
    message = text(field(row, ("status_message", "statusMessage")))
    failed, session = row.get("level") == "ERROR", field(row, ("session_id", "sessionId"), name)
    if "openinference.span.kind" in told:  # Langfuse takes input and output out of them
        values = {"input.value": row.get("input"), "output.value": row.get("output")}
        told = {"session.id": session, **values, **told}
        return kind, partial(read, named(row), told, kind=kind, failed=failed, description=message)
    usage = fields(parsed(field(row, ("usage_details", "usageDetails"))))
    is_inside = field(row, _PARENT, name) is not None
    return kind, partial(
        _reading,
        kind if is_inside or kind != "chain" else "agent",
        named(row) if kind != "chain" else "",
        parsed(row.get("input")),
        parsed(row.get("output")),
        model=field(row, ("model", "providedModelName"), name),
        used=(usage.get("input"), usage.get("output")),
        error=(message or "error") if failed else None,
        conversation=session,
    )


_LANGFUSE: Final = SpanFormat(
    _observation, ("trace_id", "traceId"), _PARENT, order=_STARTS, start=_STARTS, end=_END
)


def read_langfuse(values: Iterable[object], book: Book) -> Iterator[SourceRun]:
    """Yield the run of each trace, of the blob export or of the JSON of a trace from its page."""
    for key, rows in gathered(_observations(values), _LANGFUSE, book):
        success = mean_verdict(
            one.get("value") for row in rows for one in objects(row.get("scores"))
        )
        spans = [row for row in rows if row.get("type") != "EVENT"]
        yield from run_of(key, spans, _LANGFUSE, book, success=success)


def _reading(
    kind: Kind,
    named: str,
    given: Any,
    output: Any,
    *,
    model: str | None = None,
    used: tuple[object, object] = (None, None),
    error: str | None = None,
    conversation: str | None = None,
) -> Reading:
    """Return what a span tells by its input and its output, as a tracing service keeps them."""
    problem = None if error is None else _problem(error)
    if kind == "model":
        asked, said = messages_in(given, "user"), messages_in(output, "assistant")
        reading = model_reading(asked, said, model, *used)
        return reading._replace(problem=problem, conversation=conversation)
    if kind in {"tool", "retriever"}:
        return _tool_reading(kind, named, given, output)._replace(problem=problem)
    people = [said for said in messages_in(given, "user") if said.role == "user" and said.texts]
    answers = [said for said in messages_in(output, "assistant") if said.role == "assistant"]
    return Reading(
        kind,
        named if kind == "agent" else "",
        answer=last_text(answers) or _by_key(output, _ANSWERS) or None,
        complete=True if output is not None else None,
        task=people[-1].texts[-1] if people else _by_key(given, _SAYS_IT),
        problem=problem,
        conversation=conversation,
    )


def _tool_reading(kind: Kind, named: str, given: Any, output: Any) -> Reading:
    if [*fields(given)] == ["input"]:
        given = given["input"]
    result = parsed(fields(output).get("output", output))
    reading = Reading(kind, named, given=arguments(given), result=result)
    message = said_in(result, "tool")
    if message is None or not message.results or not fields(result).keys() & {"content", "lc"}:
        return reading
    one = message.results[0]
    return reading._replace(call_id=one.call_id, result=one.output, failed=one.failed)


def _problem(error: str) -> Problem:
    """Return an error that was written as ``ValueError('…')Traceback …``."""
    said = text(error).partition("Traceback (most recent call last)")[0].strip() or "Error"
    kind, bracket, rest = said.partition("(")
    if bracket and rest.endswith(")") and kind.isidentifier():
        message = rest[:-1].strip("'\"")
        return Problem(kind, message, message)
    kind, colon, rest = said.partition(": ")
    return (
        Problem(kind, rest, rest) if colon and kind.isidentifier() else Problem("Error", said, said)
    )


def _by_key(value: object, keys: tuple[str, ...]) -> str:
    found = fields(value)
    only = found.values() if len(found) == 1 else ()
    texts = (value, *map(found.get, keys), *only)
    return next((said for one in texts if (said := text(one))), "")
