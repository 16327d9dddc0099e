"""Read sessions of coding agents: Claude Code's transcripts and Codex's rollouts, one per file.

A line of Claude Code is a message or a part of one; its maker calls the format internal. Codex
writes both the model's and the terminal's view: this reads the model's, and of the terminal's the
ends of commands and turns, and tokens. Tested: Claude Code 2.0 to 2.1.230, Codex 0.77 to 0.149.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from kp_middleware.imports._source import ImportContext, SourceRun, read_values
from kp_middleware.recording import ModelCall, Place
from kp_middleware.spans.messages import (
    ChatMessage,
    Json,
    as_dict,
    as_name,
    as_number,
    as_text,
    as_time_s,
    first_text,
    parse_json,
    parse_message,
    sum_tokens,
)

_IGNORED_TYPES: Final = re.compile(
    "agent-name|ai-title|custom-title|file-history-snapshot|last-prompt|mode"
    "|permission-mode|pr-link|progress|queue-operation|summary|system|tag"
)
_INJECTED_TAGS: Final = re.compile(
    r"<(bash-(?:input|stdout|stderr)|command-(?:args|contents|message|name)|ide_[a-z_]+"
    r"|local-command-(?:caveat|stderr|stdout)|system-reminder|task-notification"
    r"|user-(?:memory-input|prompt-submit-hook))>.*?(?:</\1>|\Z)",
    re.DOTALL,
)
_COMMAND: Final = re.compile(
    r"<command-name>(/[^<]*)</command-name>(?:.*?<command-args>(.*?)</command-args>)?", re.DOTALL
)
_QUEUED: Final = ("queued_command", "prompt")
_INTERRUPTED: Final = "[Request interrupted by user"
_NO_MODEL: Final = "<synthetic>"  # Claude Code itself: an error of the API, or filling
_FORKED_AGENTS: Final = ("agent-acompact-", "agent-aprompt_suggestion-", "agent-aside_question-")
_HIDDEN_FLAGS: Final = ("isMeta", "isSidechain", "isCompactSummary", "isVisibleInTranscriptOnly")


def read_claude_code(values: Iterable[object], context: ImportContext) -> Iterator[SourceRun]:
    """Yield the runs of a session: one begins at each message of a person."""
    session, ids = _ClaudeSession(context), set[str]()
    for line in _with_subagents(values, context):
        id = as_text(line.get("uuid"))
        if id and id in ids:
            continue  # a line written twice
        ids.add(id)
        match as_text(line.get("type")):
            case "user":
                yield from session.user(line)
            case "assistant":
                yield from session.assistant(line)
            case "attachment":
                session.attachment(line)
            case kind if not _IGNORED_TYPES.fullmatch(kind):
                context.skip("unknown_type")
    yield from context.end_run()


def _with_subagents(values: Iterable[object], context: ImportContext) -> Iterator[Json]:
    """Yield the lines of a session, and those of each sub-agent at its start."""
    pending: list[tuple[float, Path]] = []
    subagents = context.path and (context.path.with_suffix("") / "subagents").glob("*.jsonl")
    for path in subagents or ():
        if path.is_symlink():
            context.skip("link")
        elif not path.name.startswith(_FORKED_AGENTS):  # these repeat the session
            lines = map(as_dict, read_values(path, ImportContext(context.source)))
            times = (as_time_s(line.get("timestamp")) for line in lines)
            pending.append((next(filter(None, times), 0.0), path))
    pending.sort()
    for value in values:
        at_s = as_time_s(as_dict(value).get("timestamp"))
        while pending and at_s is not None and pending[0][0] < at_s:
            yield from _sidechain(pending.pop(0)[1], context)
        yield as_dict(value)
    for _, path in pending:
        yield from _sidechain(path, context)


def _sidechain(path: Path, context: ImportContext) -> Iterator[Json]:
    """Return the lines of a sub-agent, with the id of the call that started it, if known."""
    own = read_values(path.with_suffix(".meta.json"), ImportContext(context.source))
    start = {"isSidechain": True, "toolUseId": as_dict(next(own, None)).get("toolUseId")}
    return ({**as_dict(value), **start} for value in read_values(path, context))


class _ClaudeSession:
    def __init__(self, context: ImportContext) -> None:
        self._context = context
        self._starts: dict[str, str] = {}  # the ids of runs by the parents of their first lines
        self._counted: dict[str, tuple[int, int]] = {}  # tokens by answer
        self._command: tuple[Json, str] | None = None  # a person's last line, if it was a command

    def user(self, line: Json) -> Iterator[SourceRun]:
        """Read a line of a person or of tools; yield the run that it ends."""
        context, message = self._context, as_dict(line, "message")
        at_s = as_time_s(line.get("timestamp"))
        parsed = parse_message(message, "user") or ChatMessage("user")
        if parsed.results and context.run is not None:
            context.run.add_message(parsed._replace(texts=()), at_s, place=_place(line))
        if any(line.get(flag) is True for flag in _HIDDEN_FLAGS):
            return
        if (text := _own_text(parsed)).startswith(_INTERRUPTED):
            if context.run is not None:
                context.run.interrupted = True
        elif text and not parsed.results:
            yield from self._start(line, text)
        elif not parsed.results:
            command = _COMMAND.search("\n".join(parsed.texts))
            self._command = command and (line, f"{command[1]} {command[2] or ''}".strip())

    def _start(self, line: Json, text: str) -> Iterator[SourceRun]:
        """Start the run of a person's message or command; yield the run that it ends."""
        context, previous, self._command = self._context, self._context.run, None
        at_s, parent = as_time_s(line.get("timestamp")), as_name(line.get("parentUuid"))
        line = {**line, **as_dict(line, "forkedFrom")}  # a branch repeats its session
        session = as_name(line.get("sessionId"))
        id = first_text(line, "messageUuid", "uuid") or len(self._starts)
        yield from context.start_turn(f"{session}:{id}", session)
        if context.run is not None:
            if context.run is not previous:
                self._retract(parent)
                self._starts[parent or context.run.id] = context.run.id
            context.run.add_message(ChatMessage("user", texts=(text,)), at_s)

    def attachment(self, line: Json) -> None:
        """Read what a person wrote while the agent worked."""
        run, sent = self._context.run, as_dict(line, "attachment")
        if run is None or (sent.get("type"), sent.get("commandMode")) != _QUEUED:
            return
        parsed = parse_message({"role": "user", "content": sent.get("prompt")})
        if parsed is not None and (text := _own_text(parsed)):
            run.add_message(ChatMessage("user", texts=(text,)), as_time_s(line.get("timestamp")))

    def _retract(self, parent: str | None) -> None:
        """Retract the runs of a branch that a person abandoned by going back to its parent."""
        while parent in self._starts:
            self._context.retracted.append(self._starts.popitem()[1])

    def assistant(self, line: Json) -> Iterator[SourceRun]:
        """Read a line of the agent; yield the run that ends if it answers a person's command."""
        message, is_error = as_dict(line, "message"), line.get("isApiErrorMessage") is True
        parsed, is_own = parse_message(message, "assistant"), message.get("model") == _NO_MODEL
        if parsed is None or (is_own and not is_error):
            return
        if self._command is not None:
            yield from self._start(*self._command)
        if (run := self._context.run) is None:
            return
        if is_own:
            run.interrupted = run.has_activity = True
            return
        call, parsed = self._new_tokens(line, message), parsed._replace(role="assistant")
        run.add_message(parsed, as_time_s(line.get("timestamp")), call=call, place=_place(line))

    def _new_tokens(self, line: Json, message: Json) -> ModelCall:
        """Return the tokens of an answer beyond those of its earlier lines."""
        usage = as_dict(message, "usage")
        id = first_text(message, "id") or as_text(line.get("uuid"))
        kinds = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        read, wrote = sum_tokens(*map(usage.get, kinds)), sum_tokens(usage.get("output_tokens"))
        before = self._counted.get(id, (0, 0))
        now = max(before[0], read or 0), max(before[1], wrote or 0)
        if now == before:
            return ModelCall()
        self._counted[id] = now
        return ModelCall(as_name(message.get("model")), now[0] - before[0], now[1] - before[1])


def _own_text(message: ChatMessage) -> str:
    return _INJECTED_TAGS.sub("", "\n".join(message.texts)).strip()


def _place(line: Json) -> Place | None:
    is_inside = line.get("isSidechain") is True
    return Place("subagent", as_name(line.get("toolUseId"))) if is_inside else None


_LINE_TYPES: Final = frozenset(
    ("session_meta", "turn_context", "response_item", "event_msg", "compacted", "world_state")
)
_BARE_ITEM: Final = re.compile("message|reasoning|[a-z_]+_call(?:_output)?")
_INJECTED: Final = re.compile(  # by Codex in a person's name
    r"<([a-z]+(?:_[a-z]+)+)[ >].*</\1>\s*\Z|<(?:INSTRUCTIONS|permissions instructions|skill)>"
    r"|# AGENTS\.md instructions|Warning: (?:The maximum number of unified|apply_patch was reques)",
    re.DOTALL,
)
_EXIT_CODE: Final = re.compile(
    r"(?:Chunk ID: .*\n)?(?:Wall time: .*\n)?(?:Exit code:|Process exited with code) (\d{1,9})\n"
)
_IDE_REQUEST: Final = "## My request for Codex:\n"  # after the context from an editor


def read_codex(values: Iterable[object], context: ImportContext) -> Iterator[SourceRun]:
    """Yield the runs of a session: one begins at each message of a person."""
    session = _CodexSession(context)
    for value in values:
        line = _with_envelope(as_dict(value))
        payload, at_s = as_dict(line, "payload"), as_time_s(line.get("timestamp"))
        match as_text(line.get("type")):
            case "session_meta":
                session.id = session.id or as_name(payload.get("id"))  # a fork repeats its parent's
                context.at_s = at_s or context.at_s
            case "turn_context":
                session.model = as_name(payload.get("model"))
            case "response_item":
                yield from session.item(payload, at_s)
            case "event_msg" if context.run is not None:
                session.event(payload, context.run)
            case kind if kind not in _LINE_TYPES:
                context.skip("unknown_type")
    yield from context.end_run()


class _CodexSession:
    def __init__(self, context: ImportContext) -> None:
        self._context = context
        self.id: str | None = None
        self.model: str | None = None
        self._run_ids: list[str] = []
        self._run_count = 0
        self._is_complete = False
        self._call_ends: dict[str, Json] = {}
        self._total: object = None

    def item(self, item: Json, at_s: float | None) -> Iterator[SourceRun]:
        """Read an item of the model's view; yield the run that it ends."""
        context, parsed = self._context, parse_message(item)
        if parsed is None:
            return
        if parsed.role == "user":
            texts = map(str.lstrip, parsed.texts)
            own = (text for text in texts if not _INJECTED.match(text))
            text = "\n".join(own).rpartition(_IDE_REQUEST)[2].strip()
            if not text:
                return
            parsed = parsed._replace(texts=(text,))
            self._run_count += 1
            self.id = self.id or (None if context.path is None else context.path.stem)
            yield from context.start_turn(f"{self.id}:{self._run_count}", self.id)
            self._is_complete = False
            self._run_ids += [] if context.run is None else [context.run.id]
        if context.run is not None:
            is_message = parsed.role == "assistant" and item.get("type") == "message"
            call = ModelCall(self.model) if is_message else None
            context.run.add_message(self._with_terminal_output(parsed), at_s, call=call)

    def event(self, event: Json, run: SourceRun) -> None:
        match event.get("type"):
            case "exec_command_end" | "mcp_tool_call_end" if id := as_name(event.get("call_id")):
                self._call_ends[id] = event
            case "task_complete":
                self._is_complete = True
            case "turn_aborted" if not self._is_complete:
                run.interrupted = True
            case "thread_rolled_back" if not self._context.whole_sessions:
                kept = len(self._run_ids) - int(as_number(event.get("num_turns")) or 0)
                self._context.retracted += self._run_ids[max(0, kept) :]
                del self._run_ids[max(0, kept) :]
            case "token_count":  # sent repeatedly; count each total once
                info = as_dict(event, "info")
                total, last = info.get("total_token_usage"), as_dict(info, "last_token_usage")
                if last and (total is None or total != self._total):
                    self._total = total
                    counts = map(sum_tokens, map(last.get, ("input_tokens", "output_tokens")))
                    run.count_tokens(ModelCall(self.model, *counts))

    def _with_terminal_output(self, message: ChatMessage) -> ChatMessage:
        results = []
        for result in message.results:
            end = self._call_ends.pop(result.call_id or "", {})
            body = as_dict(parse_json(result.output))
            output = end.get("aggregated_output", body.get("output", result.output))
            code = as_number(end.get("exit_code", as_dict(body, "metadata").get("exit_code")))
            if code is None and (header := _EXIT_CODE.match(as_text(result.output))):
                code = float(header[1])
            failed = result.failed or bool(code) or "Err" in as_dict(end, "result")
            results.append(result._replace(output=output, failed=failed))
        return message._replace(results=tuple(results))


def _with_envelope(line: Json) -> Json:
    """Return a line in an envelope, also one written before September 2025, without."""
    if "payload" in line:
        return line
    kind = as_text(line.get("type"))
    if _BARE_ITEM.fullmatch(kind):
        kind = "response_item"
    elif not kind and line.keys() & {"timestamp", "record_type"}:
        kind = "session_meta"
    return {**line, "type": kind, "payload": line}


def is_codex(line: Json) -> bool:
    is_known = as_text(line.get("type")) in _LINE_TYPES and isinstance(line.get("payload"), dict)
    return is_known or "record_type" in line
