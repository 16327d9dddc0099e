"""Sessions of coding agents: Claude Code's transcripts and Codex's rollouts, each one a file.

A line of Claude Code's is a message or a part of one; its maker calls the format internal. Of
Codex's, what the model saw is read; of the terminal's copy only the ends of commands, tokens and
turns. Seen: Claude Code 2.0 to 2.1.230, Codex 0.77 to 0.149.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from kp_middleware.imports._source import Book, SourceRun, values_in
from kp_middleware.recording import ModelCall, Place, text_of
from kp_middleware.spans.messages import (
    ChatMessage,
    Json,
    as_dict,
    as_name,
    as_number,
    as_text,
    as_time_s,
    parse_json,
    parse_message,
    sum_tokens,
)

_NO_STEPS: Final = re.compile(
    "agent-name|ai-title|attachment|custom-title|file-history-snapshot|last-prompt|mode"
    "|permission-mode|pr-link|progress|queue-operation|summary|system|tag"
)
_WRITTEN_BY_CLAUDE_CODE: Final = re.compile(
    r"<(bash-(?:input|stdout|stderr)|command-(?:args|contents|message|name)"
    r"|local-command-(?:caveat|stderr|stdout)|system-reminder|task-notification"
    r"|user-memory-input)>.*?(?:</\1>|\Z)",
    re.DOTALL,
)
_INTERRUPTED: Final = "[Request interrupted by user"
_OURS: Final = ("isMeta", "isSidechain", "isCompactSummary", "isVisibleInTranscriptOnly")


def read_claude_code(values: Iterable[object], book: Book) -> Iterator[SourceRun]:
    """Yield the runs of a session: one begins at each message of a person."""
    session = _ClaudeSession(book)
    for line in _with_subagents(values, book):
        match as_text(line.get("type")):
            case "user":
                yield from session.user(line)
            case "assistant":
                session.assistant(line)
            case kind if not _NO_STEPS.fullmatch(kind):
                book.skip("unknown_type")
    yield from book.end()


def _with_subagents(values: Iterable[object], book: Book) -> Iterator[Json]:
    """Yield the lines of a session, and those of each sub-agent from where it began."""
    waiting: list[tuple[float, Path]] = []
    beside = (book.path.with_suffix("") / "subagents").glob("*.jsonl") if book.path else ()
    for path in beside:
        if path.is_symlink():
            book.skip("link")
        else:
            lines = map(as_dict, values_in(path, Book(book.source)))
            times = (as_time_s(line.get("timestamp")) for line in lines)
            waiting.append((next(filter(None, times), 0.0), path))
    waiting.sort()
    for value in values:
        at_s = as_time_s(as_dict(value).get("timestamp"))
        while waiting and at_s is not None and waiting[0][0] < at_s:
            yield from _sidechain(waiting.pop(0)[1], book)
        yield as_dict(value)
    for _, path in waiting:
        yield from _sidechain(path, book)


def _sidechain(path: Path, book: Book) -> Iterator[Json]:
    return ({**as_dict(value), "isSidechain": True} for value in values_in(path, book))


class _ClaudeSession:
    def __init__(self, book: Book) -> None:
        self._book = book
        self._begun: list[tuple[str | None, str]] = []  # the line before a run's first, and its id
        self._counted: set[str] = set()

    def user(self, line: Json) -> Iterator[SourceRun]:
        """Read a line of a person, or of the tools; yield the run that it ends."""
        book, message, at_s = (
            self._book,
            as_dict(line, "message"),
            as_time_s(line.get("timestamp")),
        )
        said = parse_message(message, "user")
        if said is not None and said.results:
            if book.run is not None:
                book.run.take(said._replace(texts=()), at_s, place=_place(line))
            return
        typed = _WRITTEN_BY_CLAUDE_CODE.sub("", text_of(message.get("content"))).strip()
        if not typed or any(line.get(flag) is True for flag in _OURS):
            return
        if typed.startswith(_INTERRUPTED):
            if book.run is not None:
                book.run.interrupted = True
            return
        before, parent = book.run, as_name(line.get("parentUuid"))
        session = as_name(line.get("sessionId"))
        key = f"{session}:{as_text(line.get('uuid')) or len(self._begun)}"
        yield from book.turn(key, session)
        if book.run is not None:
            if book.run is not before:
                self._retract(parent)
                self._begun.append((parent, book.run.id))
            book.run.take(ChatMessage("user", texts=(typed,)), at_s)

    def _retract(self, before: str | None) -> None:
        """Retract the runs of a branch that the person left by going back before it."""
        begun = [parent for parent, _ in self._begun]
        if before is not None and before in begun:
            at = begun.index(before)
            self._book.retracted += [id for _, id in self._begun[at:]]
            del self._begun[at:]

    def assistant(self, line: Json) -> None:
        """Read a line of the agent: one answer can come in several, with the same id."""
        message, run = as_dict(line, "message"), self._book.run
        said = parse_message(message, "assistant")
        if run is None or said is None:
            return
        call, id, usage = None, as_text(message.get("id")), as_dict(message, "usage")
        if usage and id not in self._counted:
            self._counted.add(id)
            kinds = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
            read, wrote = sum_tokens(*map(usage.get, kinds)), sum_tokens(usage.get("output_tokens"))
            call = ModelCall(as_name(message.get("model")), read, wrote)
        said = said._replace(role="assistant", model=None, input_tokens=None, output_tokens=None)
        run.take(said, as_time_s(line.get("timestamp")), call=call, place=_place(line))


def _place(line: Json) -> Place | None:
    return Place("subagent") if line.get("isSidechain") is True else None


_TYPES: Final = frozenset(
    ("session_meta", "turn_context", "response_item", "event_msg", "compacted", "world_state")
)
_WRITTEN_BY_CODEX: Final = (
    "<environment_context>",
    "# AGENTS.md instructions",
    "<user_instructions>",
    "<permissions instructions>",
    "<INSTRUCTIONS>",
    "<turn_aborted>",
    "<user_shell_command>",
    "<skill>",
)


def read_codex(values: Iterable[object], book: Book) -> Iterator[SourceRun]:
    """Yield the runs of a session: one begins at each message of a person."""
    session = _CodexSession(book)
    for value in values:
        line = as_dict(value)
        payload, at_s = as_dict(line, "payload"), as_time_s(line.get("timestamp"))
        match as_text(line.get("type")):
            case "session_meta":
                session.id = as_name(payload.get("id")) or session.id
            case "turn_context":
                session.model = as_name(payload.get("model"))
            case "response_item":
                yield from session.item(payload, at_s)
            case "event_msg" if book.run is not None:
                session.event(payload, book.run)
            case kind if kind not in _TYPES:
                book.skip("unknown_type")
    yield from book.end()


class _CodexSession:
    def __init__(self, book: Book) -> None:
        self._book = book
        self.id: str | None = None
        self.model: str | None = None
        self._runs = 0
        self._is_over = False
        self._ends: dict[str, Json] = {}
        self._total: object = None

    def item(self, item: Json, at_s: float | None) -> Iterator[SourceRun]:
        """Read what the model saw; yield the run that it ends."""
        book, said = self._book, parse_message(item)
        if said is None:
            return
        if said.role == "user":
            words = "\n".join(said.texts).strip()
            if not words or words.startswith(_WRITTEN_BY_CODEX):
                return
            self._runs += 1
            yield from book.turn(f"{self.id}:{self._runs}", self.id)
            self._is_over = False
        if book.run is not None:
            is_message = said.role == "assistant" and item.get("type") == "message"
            call = ModelCall(self.model) if is_message else None
            book.run.take(self._as_shown(said), at_s, call=call)

    def event(self, event: Json, run: SourceRun) -> None:
        """Read what the terminal showed: the ends of commands and turns, and tokens."""
        match event.get("type"):
            case "exec_command_end" if call_id := as_name(event.get("call_id")):
                self._ends[call_id] = event
            case "task_complete":
                self._is_over = True
            case "turn_aborted" if not self._is_over:
                run.interrupted = True
            case "token_count":  # repeated: each total counts once
                info = as_dict(event, "info")
                total, last = info.get("total_token_usage"), as_dict(info, "last_token_usage")
                if last and (total is None or total != self._total):
                    self._total = total
                    counts = (sum_tokens(last.get(f"{way}_tokens")) for way in ("input", "output"))
                    run.used(ModelCall(self.model, *counts))

    def _as_shown(self, said: ChatMessage) -> ChatMessage:
        """Return the results of calls as the terminal showed them, where it did."""
        results = []
        for result in said.results:
            end = self._ends.pop(result.call_id or "", {})
            told = as_dict(parse_json(result.output))
            output = end.get("aggregated_output", told.get("output", result.output))
            code = as_number(end.get("exit_code", as_dict(told, "metadata").get("exit_code")))
            failed = result.failed or (code is not None and code != 0)
            results.append(result._replace(output=output, failed=failed))
        return said._replace(results=tuple(results))


def is_codex(line: Json) -> bool:
    """Return whether an object is a line of a rollout."""
    return as_text(line.get("type")) in _TYPES and isinstance(line.get("payload"), dict)
