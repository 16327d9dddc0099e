"""ATIF, the trajectories of Harbor and Terminal-Bench. Seen: versions 1.0 to 1.7."""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from kp_middleware.imports._run import Book, SourceRun, verdict
from kp_middleware.imports._values import digest
from kp_middleware.recording import ModelCall
from kp_middleware.spans import (
    Fields,
    arguments,
    fields,
    listed,
    name,
    objects,
    text_of,
    time_s,
    tokens,
)


def read_atif(values: Iterable[object], book: Book) -> Iterator[SourceRun]:
    """Yield the run of each trajectory."""
    for value in values:
        document = fields(value)
        if not listed(document.get("steps")):
            book.skip("unknown_type")
            continue
        session, agent = name(document.get("session_id")), fields(document.get("agent"))
        run = book.begin(name(document.get("trajectory_id")) or session or digest(value), session)
        for step in objects(document.get("steps")):
            _read(run, step, name(agent.get("model_name")))
        run.success = _verdict(document, book.path)
        yield run


def _verdict(document: Fields, path: Path | None) -> bool | None:
    """Return the reward of a trajectory, or of Harbor's ``result.json`` of the same trial."""
    for said in (document, document.get("extra"), document.get("final_metrics")):
        part = fields(said)
        if (found := verdict({**part, **fields(part.get("extra"))})) is not None:
            return found
    for folder in [] if path is None else path.parents[:2]:
        with suppress(OSError, ValueError, RecursionError):
            result = fields(json.loads((folder / "result.json").read_bytes()))
            rewards = fields(fields(result.get("verifier_result")).get("rewards"))
            return verdict({"reward": next(iter(rewards.values()), None)})
    return None


def _read(run: SourceRun, step: Fields, model: str | None) -> None:
    source, at_s = step.get("source"), time_s(step.get("timestamp"))
    message = text_of(step.get("message"))
    if source == "user" and message:
        run.said(message, at_s)
    elif source == "agent":
        metrics = fields(step.get("metrics"))
        read, written = metrics.get("prompt_tokens"), metrics.get("completion_tokens")
        call = ModelCall(name(step.get("model_name")) or model, tokens(read), tokens(written))
        run.thought(text_of(step.get("reasoning_content")), at_s)
        run.thought(message, at_s, call=call)
        for called in objects(step.get("tool_calls")):
            tool = name(called.get("function_name")) or "(unnamed)"
            given = arguments(called.get("arguments"))
            run.called(tool, given, name(called.get("tool_call_id")), at_s)
    for result in objects(fields(step.get("observation")).get("results")):
        failed = fields(result.get("extra")).get("is_error") is True
        run.returned(
            text_of(result.get("content")), name(result.get("source_call_id")), failed=failed
        )
