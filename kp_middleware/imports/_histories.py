"""Histories of chat messages in every form in which they are published, and trajectories.

Trajectories are ATIF of Harbor and Terminal-Bench, SWE-agent's ``.traj``, and mini-swe-agent's.
Seen of ATIF: versions 1.0 to 1.7.
"""

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from kp_middleware.imports._source import Book, SourceRun, digest, verdict
from kp_middleware.recording import ToolCall, text_of
from kp_middleware.spans.messages import (
    ChatMessage,
    Json,
    Result,
    as_dict,
    as_dicts,
    as_list,
    as_name,
    as_number,
    as_text,
    as_time_s,
    first_text,
    parse_json,
    parse_message,
)

_LOOKED_AT = 20
_COMMAND: Final = re.compile(r"\s*([A-Za-z_][\w-]{0,60})(?=\s|$)")
_SHELL: Final = "bash"
_ITEMS: Final = """
    SELECT CAST(session_id AS TEXT), id, message_data, created_at FROM agent_messages
    ORDER BY session_id, id
"""
_BLOCK: Final = re.compile(r"```(?:bash|mswea_bash_command|sh)\s*\n(.*?)```", re.DOTALL)
_CODE: Final = re.compile(r"<returncode>\s*(-?\d{1,6})\s*</returncode>")


def read_messages(values: Iterable[object], book: Book) -> Iterator[SourceRun]:
    """Yield a run of each document: ``{"messages": […]}``, ``{"traj": […]}`` or a bare list."""
    for value in values:
        document = as_dict(value)
        histories = (value, *(document.get(key) for key in ("messages", "traj", "items")))
        history = next((found for one in histories if (found := as_list(one))), [])
        if not has_messages(history):
            book.skip("unknown_type")
            continue
        run = SourceRun(book, digest(value), as_name(document.get("session_id")))
        is_tau_bench = "traj" in document or "trial" in document
        for message in history:
            if (said := parse_message(message)) is None:
                continue
            if is_tau_bench:  # where a failed tool's result begins with Error
                told = ((one, as_text(one.output).startswith("Error")) for one in said.results)
                results = (one._replace(failed=one.failed or says) for one, says in told)
                said = said._replace(results=tuple(results))
            run.take(said, as_time_s(as_dict(message).get("timestamp")))
        run.success = verdict(document)
        yield run


def has_messages(history: object) -> bool:
    """Return whether a value is a list of messages or items."""
    return any(parse_message(one) is not None for one in as_list(history)[:_LOOKED_AT])


def read_session(path: Path, book: Book) -> Iterator[SourceRun]:
    """Yield the runs that an Agents SDK's ``SQLiteSession`` kept, and write nothing beside it."""
    log, session = path.with_name(f"{path.name}-wal"), None
    is_at_rest = not (log.is_file() and log.stat().st_size)
    address = f"{path.resolve().as_uri()}?mode=ro{'&immutable=1' if is_at_rest else ''}"
    with closing(sqlite3.connect(address, uri=True)) as connection:
        connection.execute("PRAGMA trusted_schema = OFF")
        for of, key, item, at in connection.execute(_ITEMS):
            said = parse_message(parse_json(item))
            if said is None:
                book.skip("unknown_type")
                continue
            if of != session:
                yield from book.end()
            if of != session or said.role == "user":
                yield from book.turn(f"{of}:{key}", of)
                session = of
            if book.run is not None:
                book.run.take(said, as_time_s(at))
    yield from book.end()


def read_atif(values: Iterable[object], book: Book) -> Iterator[SourceRun]:
    """Yield the run of each trajectory."""
    for value in values:
        document = as_dict(value)
        if not as_list(document.get("steps")):
            book.skip("unknown_type")
            continue
        session, agent = as_name(document.get("session_id")), as_dict(document, "agent")
        key = as_name(document.get("trajectory_id")) or session or digest(value)
        run = SourceRun(book, key, session)
        for step in as_dicts(document.get("steps")):
            _read_step(run, step, as_name(agent.get("model_name")))
        run.success = _atif_verdict(document, book.path)
        yield run


def _atif_verdict(document: Json, path: Path | None) -> bool | None:
    """Return the reward of a trajectory, or of Harbor's ``result.json`` of the same trial."""
    for said in (document, document.get("extra"), document.get("final_metrics")):
        part = as_dict(said)
        if (found := verdict({**part, **as_dict(part, "extra")})) is not None:
            return found
    for folder in [] if path is None else path.parents[:2]:
        with suppress(OSError, ValueError, RecursionError):
            result = as_dict(json.loads((folder / "result.json").read_bytes()))
            rewards = as_dict(result, "verifier_result", "rewards")
            return verdict({"reward": next(iter(rewards.values()), None)})
    return None


def _read_step(run: SourceRun, step: Json, model: str | None) -> None:
    """Read a step as the messages that it tells."""
    calls = [
        {**call, "name": call.get("function_name"), "id": call.get("tool_call_id")}
        for call in as_dicts(step.get("tool_calls"))
    ]
    message = {
        "role": "assistant" if step.get("source") == "agent" else step.get("source"),
        "content": text_of(step.get("message")),
        "reasoning_content": text_of(step.get("reasoning_content")),
        "tool_calls": calls,
        "model": step.get("model_name") or model,
        "usage": step.get("metrics"),
    }
    if (said := parse_message(message)) is not None:
        run.take(said, as_time_s(step.get("timestamp")))
    for result in as_dicts(as_dict(step, "observation").get("results")):
        output, call_id = text_of(result.get("content")), as_name(result.get("source_call_id"))
        failed = as_dict(result, "extra").get("is_error") is True
        run.take(ChatMessage("tool", results=(Result(output, call_id, failed=failed),)))


def read_swe_agent(values: Iterable[object], book: Book) -> Iterator[SourceRun]:
    """Yield the run of each trajectory; one that was not submitted is a failure."""
    for value in values:
        document = as_dict(value)
        steps, messages = as_list(document.get("trajectory")), as_list(document.get("messages"))
        if not steps and not messages:
            book.skip("unknown_type")
            continue
        run, info = SourceRun(book, digest(value)), as_dict(document, "info")
        if steps:
            _read_steps(run, document, steps)
        else:
            _read_messages(run, messages)
        said = verdict(document)
        run.success = verdict(info) if said is None else said
        run.result = as_text(info.get("submission")) or run.result
        status = as_text(info.get("exit_status")) or as_text(document.get("exit_status"))
        if status and not status.lower().startswith("submitted"):
            run.success, run.error_type = bool(run.success), status
        yield run


def _read_steps(run: SourceRun, document: Json, steps: list[object]) -> None:
    """Read SWE-agent's steps; the task is what a person said first, or else its name."""
    histories = (document.get("history"), as_dict(steps[0]).get("query"))
    messages = (message for history in histories for message in as_dicts(history))
    asked = (
        text_of(message.get("content"))
        for message in messages
        if message.get("role") == "user" and message.get("is_demo") is not True
    )
    names = ("problem_statement", "instance_id", "environment")
    if task := next(filter(None, asked), "") or first_text(document, *names):
        run.take(ChatMessage("user", texts=(task,)))
    for step in as_dicts(steps):
        action, took_s = as_text(step.get("action")), as_number(step.get("execution_time"))
        run.take(ChatMessage("assistant", (as_text(step.get("thought")),)))
        if action.strip():
            named = _COMMAND.match(action)
            call = ToolCall(named[1] if named else _SHELL, {"command": action})
            run.take(ChatMessage("assistant", calls=(call,)))
            took_ms = None if took_s is None else max(0.0, took_s * 1000)
            result = Result(as_text(step.get("observation")))
            run.take(ChatMessage("tool", results=(result,)), took_ms=took_ms)


def _read_messages(run: SourceRun, messages: list[object]) -> None:
    """Read mini-swe-agent's messages: after the task, what a user says is a command's output."""
    for message in as_dicts(messages):
        extra, heard = as_dict(message, "extra"), parse_message(message)
        at_s = as_time_s(message.get("timestamp")) or as_time_s(extra.get("timestamp"))
        said = text_of(message.get("content"))
        if heard is None:
            continue
        if heard.role == "assistant":
            calls = [
                ToolCall(_SHELL, {"command": command}, call_id)
                for command, call_id in _commands(message, extra, said)
            ]
            heard = heard._replace(calls=(*calls,))
        elif heard.role == "tool" or (heard.role == "user" and run.recorder.objective):
            code, shown = as_number(extra.get("returncode")), _CODE.search(said)
            code = float(shown[1]) if code is None and shown else code
            result = Result(said, as_name(message.get("tool_call_id")), failed=bool(code))
            heard = ChatMessage("tool", results=(result,))
        run.take(heard, at_s)


def _commands(message: Json, extra: Json, said: str) -> Iterator[tuple[str, str | None]]:
    """Yield the commands of a message with their ids, from the first place that has some."""
    if actions := as_list(extra.get("actions")):
        for action in actions:
            if command := as_text(action) or as_text(as_dict(action).get("command")):
                yield command, as_name(as_dict(action).get("tool_call_id"))
    elif calls := as_dicts(message.get("tool_calls")):
        for call in calls:
            yield as_text(as_dict(call, "function").get("arguments")), as_name(call.get("id"))
    else:
        yield from ((command, None) for command in _BLOCK.findall(said))
