"""Histories of chat messages in every form in which they are published, and trajectories.

Trajectories are ATIF of Harbor and Terminal-Bench, SWE-agent's ``.traj``, and mini-swe-agent's.
Seen of ATIF: versions 1.0 to 1.7.
"""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from kp_middleware.imports._run import Book, SourceRun, verdict
from kp_middleware.imports._values import digest
from kp_middleware.recording import ModelCall, text_of
from kp_middleware.spans.fields import (
    Fields,
    arguments,
    fields,
    listed,
    name,
    number,
    objects,
    parsed,
    text,
    time_s,
    tokens,
)
from kp_middleware.spans.messages import Said, said_in

_LOOKED_AT = 20


def read_messages(values: Iterable[object], book: Book) -> Iterator[SourceRun]:
    """Yield a run of each document: ``{"messages": […]}``, ``{"traj": […]}`` or a bare list."""
    for value in values:
        document = fields(value)
        histories = (value, *(document.get(key) for key in ("messages", "traj", "items")))
        history = next((found for one in histories if (found := listed(one))), [])
        if not has_messages(history):
            book.skip("unknown_type")
            continue
        run = book.begin(digest(value), name(document.get("session_id")))
        says_errors = "traj" in document or "trial" in document
        for message in history:
            if (said := said_in(message)) is not None:
                at_s = time_s(fields(message).get("timestamp"))
                run.take(_with_errors(said) if says_errors else said, at_s)
        run.success = verdict(document)
        yield run


def has_messages(history: object) -> bool:
    """Return whether a value is a list of messages or items."""
    return any(said_in(one) is not None for one in listed(history)[:_LOOKED_AT])


def _with_errors(said: Said) -> Said:
    """Return a message of tau-bench, where a failed tool's result begins with ``Error``."""
    results = (
        one._replace(failed=one.failed or text(one.output).startswith("Error"))
        for one in said.results
    )
    return said._replace(results=tuple(results))


def read_session(rows: Iterable[tuple[str, str, str, str]], book: Book) -> Iterator[SourceRun]:
    """Yield the runs of sessions that an Agents SDK ``SQLiteSession`` kept.

    A row has a session, a key, an item as JSON and a time; rows come by session, in order.
    """
    run: SourceRun | None = None
    session = None
    for of, key, item, at in rows:
        said = said_in(parsed(item))
        if said is None:
            book.skip("unknown_type")
            continue
        if of != session or said.role == "user":
            following = book.turn(run if of == session else None, f"{of}:{key}", of)
            if run is not None and following is not run:
                yield run
            run, session = following, of
        if run is not None:
            run.take(said, time_s(at))
    if run is not None:
        yield run


_COMMAND: Final = re.compile(r"\s*([A-Za-z_][\w-]{0,60})(?=\s|$)")
_SHELL: Final = "bash"
_BLOCK: Final = re.compile(r"```(?:bash|mswea_bash_command|sh)\s*\n(.*?)```", re.DOTALL)
_CODE: Final = re.compile(r"<returncode>\s*(-?\d{1,6})\s*</returncode>")


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
            _read_step(run, step, name(agent.get("model_name")))
        run.success = _atif_verdict(document, book.path)
        yield run


def _atif_verdict(document: Fields, path: Path | None) -> bool | None:
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


def _read_step(run: SourceRun, step: Fields, model: str | None) -> None:
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


def read_swe_agent(values: Iterable[object], book: Book) -> Iterator[SourceRun]:
    """Yield the run of each trajectory."""
    for value in values:
        document = fields(value)
        steps, messages = listed(document.get("trajectory")), listed(document.get("messages"))
        if not steps and not messages:
            book.skip("unknown_type")
            continue
        run = book.begin(digest(value))
        if steps:
            _read_steps(run, document, steps)
        else:
            _read_messages(run, messages)
        _end(run, document)
        yield run


def _read_steps(run: SourceRun, document: Fields, steps: list[object]) -> None:
    if task := _task(document, steps):
        run.said(task)
    for step in objects(steps):
        run.thought(text(step.get("thought")))
        action = text(step.get("action"))
        if action.strip():
            named = _COMMAND.match(action)
            took_s = number(step.get("execution_time"))
            run.called(named[1] if named else _SHELL, {"command": action})
            took_ms = None if took_s is None else max(0.0, took_s * 1000)
            run.returned(text(step.get("observation")), took_ms=took_ms)


def _task(document: Fields, steps: list[object]) -> str:
    """Return the first message of a person that is no demonstration, else the task's name."""
    histories = (document.get("history"), fields(steps[0]).get("query"))
    for history in histories:
        for message in objects(history):
            is_theirs = message.get("role") == "user" and message.get("is_demo") is not True
            if is_theirs and (said := text_of(message.get("content"))):
                return said
    said = text(document.get("problem_statement")) or text(document.get("instance_id"))
    return said or text(document.get("environment"))


def _read_messages(run: SourceRun, messages: list[object]) -> None:
    """Read mini-swe-agent's messages: after the task, what a user says is a command's output."""
    for message in objects(messages):
        extra, heard = fields(message.get("extra")), said_in(message)
        at_s = time_s(message.get("timestamp")) or time_s(extra.get("timestamp"))
        said = text_of(message.get("content"))
        if heard is None:
            continue
        if heard.role == "assistant":
            run.take(heard._replace(calls=()), at_s)
            for command, call_id in _commands(message, extra, said):
                run.called(_SHELL, {"command": command}, call_id, at_s)
        elif heard.role == "tool" or (heard.role == "user" and run.has_objective):
            code = number(extra.get("returncode"))
            shown = _CODE.search(said)
            code = float(shown[1]) if code is None and shown else code
            call_id = name(message.get("tool_call_id"))
            run.returned(said, call_id, at_s, failed=code is not None and code != 0)
        else:
            run.take(heard, at_s)


def _commands(message: Fields, extra: Fields, said: str) -> Iterator[tuple[str, str | None]]:
    actions = listed(extra.get("actions"))
    for action in actions:
        if command := text(action) or text(fields(action).get("command")):
            yield command, name(fields(action).get("tool_call_id"))
    if actions:
        return
    calls = objects(message.get("tool_calls"))
    for call in calls:
        yield text(fields(call.get("function")).get("arguments")), name(call.get("id"))
    if not calls:
        yield from ((command, None) for command in _BLOCK.findall(said))


def _end(run: SourceRun, document: Fields) -> None:
    """Take the verdict; what was not submitted is a failure."""
    info = fields(document.get("info"))
    status = text(info.get("exit_status")) or text(document.get("exit_status"))
    said = verdict(document)
    run.success = verdict(info) if said is None else said
    run.result = text(info.get("submission")) or run.result
    if status and not status.lower().startswith("submitted"):
        run.success, run.error_type = bool(run.success), status
