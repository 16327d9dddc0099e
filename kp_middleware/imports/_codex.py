"""Codex's rollouts: one session a file, what the model saw and what the terminal showed.

What the model saw is read; of the terminal's copy only the ends of commands, tokens and turns.
Seen: versions 0.77 to 0.149.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from kp_middleware.imports._run import Book, SourceRun
from kp_middleware.recording import ModelCall
from kp_middleware.spans.fields import Fields, fields, name, number, parsed, text, time_s, tokens
from kp_middleware.spans.messages import Said, said_in

_TYPES: Final = frozenset(
    ("session_meta", "turn_context", "response_item", "event_msg", "compacted", "world_state")
)
_SCAFFOLDING: Final = (
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
    session = _Session(book)
    for value in values:
        line = fields(value)
        payload, at_s = fields(line.get("payload")), time_s(line.get("timestamp"))
        match text(line.get("type")):
            case "session_meta":
                session.id = name(payload.get("id")) or session.id
            case "turn_context":
                session.model = name(payload.get("model"))
            case "response_item":
                yield from session.item(payload, at_s)
            case "event_msg":
                session.event(payload)
            case kind if kind not in _TYPES:
                book.skip("unknown_type")
    if session.run is not None:
        yield session.run


class _Session:
    def __init__(self, book: Book) -> None:
        self._book = book
        self.run: SourceRun | None = None
        self.id: str | None = None
        self.model: str | None = None
        self._runs = 0
        self._is_over = False
        self._ends: dict[str, Fields] = {}
        self._total: object = None

    def item(self, item: Fields, at_s: float | None) -> Iterator[SourceRun]:
        """Read what the model saw; yield the run that it ends."""
        said = said_in(item)
        if said is None:
            return
        if said.role == "user":
            words = "\n".join(said.texts).strip()
            if not words or words.startswith(_SCAFFOLDING):
                return
            before, self._runs = self.run, self._runs + 1
            self.run = self._book.turn(before, f"{self.id}:{self._runs}", self.id)
            if self.run is not before and before is not None:
                yield before
            self._is_over = False
        if self.run is not None:
            is_message = said.role == "assistant" and item.get("type") == "message"
            call = ModelCall(self.model) if is_message else None
            self.run.take(self._as_shown(said), at_s, call=call)

    def event(self, event: Fields) -> None:
        match event.get("type"):
            case "exec_command_end" if call_id := name(event.get("call_id")):
                self._ends[call_id] = event
            case "task_complete":
                self._is_over = True
            case "turn_aborted" if self.run is not None and not self._is_over:
                self.run.interrupted = True
            case "token_count" if self.run is not None:
                self._count(self.run, fields(event.get("info")))

    def _as_shown(self, said: Said) -> Said:
        """Return the results of calls as the terminal showed them, where it did."""
        results = []
        for result in said.results:
            end = self._ends.pop(result.call_id or "", {})
            told = fields(parsed(result.output))
            output = end.get("aggregated_output", told.get("output", result.output))
            code = number(end.get("exit_code", fields(told.get("metadata")).get("exit_code")))
            failed = result.failed or (code is not None and code != 0)
            results.append(result._replace(output=output, failed=failed))
        return said._replace(results=tuple(results))

    def _count(self, run: SourceRun, info: Fields) -> None:
        """Count the tokens of the last model call, once: the event is repeated."""
        total, last = info.get("total_token_usage"), fields(info.get("last_token_usage"))
        if last and (total is None or total != self._total):
            self._total = total
            read, written = tokens(last.get("input_tokens")), tokens(last.get("output_tokens"))
            run.used(ModelCall(self.model, read, written))


def is_codex(line: Fields) -> bool:
    """Return whether an object is a line of a rollout."""
    return text(line.get("type")) in _TYPES and isinstance(line.get("payload"), dict)
