"""Read histories of chat messages in their published forms, and trajectories.

Trajectories are ATIF (Harbor and Terminal-Bench, versions 1.0 to 1.7), SWE-agent's ``.traj`` and
mini-swe-agent's.
"""

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from kp_middleware.imports._source import ImportContext, SourceRun, content_key, verdict
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

HISTORY_KEYS: Final = ("messages", "traj", "items", "conversations", "contents")
"""The keys of a document that may hold its messages."""

_SAMPLE_SIZE: Final = 20
_COMMAND: Final = re.compile(r"\s*([A-Za-z_][\w-]{0,60})(?=\s|$)")
_SHELL: Final = "bash"
_SESSION_ITEMS: Final = """
    SELECT CAST(session_id AS TEXT), id, message_data, created_at FROM agent_messages
    ORDER BY session_id, id
"""
_CODE_BLOCK: Final = re.compile(r"```(?:bash|mswea_bash_command|sh)\s*\n(.*?)```", re.DOTALL)
_RETURN_CODE: Final = re.compile(r"<returncode>\s*(-?\d{1,6})\s*</returncode>")


def read_messages(values: Iterable[object], context: ImportContext) -> Iterator[SourceRun]:
    """Yield a run of each document: ``{"messages": […]}``, ``{"traj": […]}`` or a bare list."""
    for value in values:
        document = as_dict(value)
        histories = (value, *(parse_json(document.get(key)) for key in HISTORY_KEYS))
        history = next(filter(None, map(as_list, histories)), [])
        if not has_messages(history):
            context.skip("unknown_type")
            continue
        run = SourceRun(context, content_key(value), as_name(document.get("session_id")))
        is_tau_bench = "traj" in document or "trial" in document
        for message in history:
            if (parsed := parse_message(message)) is None:
                continue
            if is_tau_bench:  # there, the result of a failed tool starts with Error
                results = (
                    one._replace(failed=one.failed or as_text(one.output).startswith("Error"))
                    for one in parsed.results
                )
                parsed = parsed._replace(results=tuple(results))
            run.add_message(parsed, as_time_s(as_dict(message).get("timestamp")))
        run.recorder.model = run.recorder.model or as_name(document.get("model"))
        run.count_total(as_dict(document, "usage"), "prompt_tokens", "completion_tokens")
        run.recorder.success = verdict(document)
        yield run


def has_messages(history: object) -> bool:
    return any(parse_message(item) is not None for item in as_list(history)[:_SAMPLE_SIZE])


def read_session(path: Path, context: ImportContext) -> Iterator[SourceRun]:
    """Yield the runs of an Agents SDK ``SQLiteSession``, without creating files next to it."""
    log, session = path.with_name(f"{path.name}-wal"), None
    has_log = log.is_file() and log.stat().st_size > 0
    uri = f"{path.resolve().as_uri()}?mode=ro{'' if has_log else '&immutable=1'}"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        connection.execute("PRAGMA trusted_schema = OFF")
        for session_id, item_id, item, at in connection.execute(_SESSION_ITEMS):
            message = parse_message(parse_json(item))
            if message is None:
                context.skip("unknown_type")
                continue
            if session_id != session:
                yield from context.end_run()
            if session_id != session or message.role == "user":
                yield from context.start_turn(f"{session_id}:{item_id}", session_id)
                session = session_id
            if context.run is not None:
                at_s = as_time_s(at) if message.role == "user" else None  # the SDK stores them late
                context.run.add_message(message, at_s)
    yield from context.end_run()


def read_atif(values: Iterable[object], context: ImportContext) -> Iterator[SourceRun]:
    for value in values:
        document = as_dict(value)
        if not as_list(document.get("steps")):
            context.skip("unknown_type")
            continue
        session, agent = as_name(document.get("session_id")), as_dict(document, "agent")
        key = as_name(document.get("trajectory_id")) or session or content_key(value)
        run, request = SourceRun(context, key, session), ""
        run.recorder.agent_name = as_name(agent.get("name"))
        for step in as_dicts(document.get("steps")):
            if step.get("is_copied_context") is not True:
                _read_step(run, step, as_name(agent.get("model_name")))
            elif step.get("source") == "user":  # of the trajectory that this one continues
                request = text_of(step.get("message"))
        if not run.recorder.objective:
            run.recorder.set_objective(request)
        totals = as_dict(document, "final_metrics")
        run.count_total(totals, "total_prompt_tokens", "total_completion_tokens")
        run.recorder.success = _read_atif_verdict(document, context.path)
        yield run


def _read_atif_verdict(document: Json, path: Path | None) -> bool | None:
    """Return the reward of a trajectory, or of Harbor's ``result.json`` of the same trial."""
    for part in (document, as_dict(document, "extra"), as_dict(document, "final_metrics")):
        if (success := verdict({**part, **as_dict(part, "extra")})) is not None:
            return success
    for folder in [] if path is None else path.parents[:2]:
        with suppress(OSError, ValueError, RecursionError):
            result = as_dict(json.loads((folder / "result.json").read_bytes()))
            rewards = as_dict(result, "verifier_result", "rewards")
            return verdict({"reward": next(iter(rewards.values()), None)})
    return None


def _read_step(run: SourceRun, step: Json, model: str | None) -> None:
    message = {
        **step,
        "role": "assistant" if step.get("source") == "agent" else step.get("source"),
        "content": text_of(step.get("message")),
        "reasoning_content": text_of(step.get("reasoning_content")),
        "model": step.get("model_name") or model,
        "usage": step.get("metrics"),
    }
    if (parsed := parse_message(message)) is not None:
        run.add_message(parsed, as_time_s(step.get("timestamp")))
    for result in as_dicts(as_dict(step, "observation").get("results")):
        output, call_id = text_of(result.get("content")), as_name(result.get("source_call_id"))
        failed = as_dict(result, "extra").get("is_error") is True
        run.add_message(ChatMessage("tool", results=(Result(output, call_id, failed=failed),)))


def read_swe_agent(values: Iterable[object], context: ImportContext) -> Iterator[SourceRun]:
    """Yield the run of each trajectory; a run without a submission failed."""
    for value in values:
        document = as_dict(value)
        steps, messages = as_list(document.get("trajectory")), as_list(document.get("messages"))
        if not steps and not messages:
            context.skip("unknown_type")
            continue
        run, info = SourceRun(context, content_key(value)), as_dict(document, "info")
        if steps:
            _read_steps(run, document, steps)
        else:
            _read_messages(run, messages)
        success = verdict(document)
        run.recorder.success = verdict(info) if success is None else success
        run.result = as_text(info.get("submission")) or run.result
        run.count_total(as_dict(info, "model_stats"), "tokens_sent", "tokens_received")
        status = as_text(info.get("exit_status")) or as_text(document.get("exit_status"))
        if status and not status.lower().startswith("submitted"):
            run.recorder.success, run.recorder.error_type = bool(run.recorder.success), status
        elif not status and "exit_status" in info:  # saved before its end
            run.interrupted = run.recorder.success is None
        yield run


def _read_steps(run: SourceRun, document: Json, steps: list[object]) -> None:
    """Add SWE-agent's steps; the task is the first user message, or else its name."""
    histories = (document.get("history"), as_dict(steps[0]).get("query"))
    messages = (message for history in histories for message in as_dicts(history))
    requests = (
        text_of(message.get("content"))
        for message in messages
        if message.get("role") == "user" and message.get("is_demo") is not True
    )
    names = ("problem_statement", "instance_id", "environment")
    if task := next(filter(None, requests), "") or first_text(document, *names):
        run.add_message(ChatMessage("user", texts=(task,)))
    for step in as_dicts(steps):
        action, took_s = as_text(step.get("action")), as_number(step.get("execution_time"))
        thoughts = (*filter(None, [as_text(step.get("thought"))]),)
        run.add_message(ChatMessage("assistant", thoughts, thoughts))
        if action.strip():
            command = _COMMAND.match(action)
            call = ToolCall(command[1] if command else _SHELL, {"command": action})
            run.add_message(ChatMessage("assistant", calls=(call,)))
            took_ms = None if took_s is None else max(0.0, took_s * 1000)
            result = Result(as_text(step.get("observation")))
            run.add_message(ChatMessage("tool", results=(result,)), took_ms=took_ms)


def _read_messages(run: SourceRun, messages: list[object]) -> None:
    """Add mini-swe-agent's messages; user messages after the task are outputs of commands."""
    for message in as_dicts(messages):
        extra, answer = as_dict(message, "extra"), as_dict(message, "extra", "response")
        facts = {"model": answer.get("model"), "usage": answer.get("usage")}
        parsed = parse_message({**facts, **message})
        at_s = as_time_s(message.get("timestamp")) or as_time_s(extra.get("timestamp"))
        if parsed is None:
            continue
        text = "\n".join(parsed.texts)
        if parsed.role == "assistant":
            parsed = parsed._replace(calls=parsed.calls or (*_commands(extra, text),))
        elif parsed.role == "tool" or (parsed.role == "user" and run.recorder.objective):
            result = next(iter(parsed.results), Result(text))
            match = _RETURN_CODE.search(as_text(result.output))
            code = as_number(extra.get("returncode"))
            code = float(match[1]) if code is None and match else code
            parsed = ChatMessage("tool", results=(result._replace(failed=bool(code)),))
        run.add_message(parsed, at_s)


def _commands(extra: Json, text: str) -> Iterator[ToolCall]:
    actions = as_list(extra.get("actions"))
    commands = (as_text(one) or as_text(as_dict(one).get("command")) for one in actions)
    for command in [*filter(None, commands)] or _CODE_BLOCK.findall(text):
        yield ToolCall(_SHELL, {"command": command})
