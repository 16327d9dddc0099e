"""Turns of models and messages of a chat, and which of a history that repeats are new."""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import count, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from kp_middleware.recording._spans import Span

_MOST_CALLS: Final = 1024  # that may wait for a result, of models whose calls nobody runs
_REMEMBERED: Final = 64  # messages: enough to know the last turns of agents that talk in parallel
_FARTHEST: Final = 1000


class ToolCall(NamedTuple):
    """A tool call that a model asked for; ``error`` is set if it cannot be run."""

    name: str
    args: Mapping[str, object]
    id: str | None = None
    error: str | None = None


class ServedResult(NamedTuple):
    """The result of a tool that the model's provider ran."""

    name: str
    output: object
    failed: bool = False


class Turn(NamedTuple):
    """One turn of a model.

    Attributes:
        calls: The tools that it wants to be run.
        served: The calls and results of its provider's own tools, in order.
        tokens: The numbers of input and output tokens, or None.
        message_id: The id of its message, or None.
        unfinished: The provider's word for why no run can end with it, or None.
        thoughts: Its reasoning and text, if they are several steps; by default they are one.
    """

    reasoning: str = ""
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    served: tuple[ToolCall | ServedResult, ...] = ()
    model: str | None = None
    tokens: tuple[int, int] | None = None
    message_id: str | None = None
    unfinished: str | None = None
    thoughts: tuple[str, ...] = ()

    @property
    def thought(self) -> str:
        """The reasoning and the text, as far as they are not blank."""
        return "\n\n".join(part for part in (self.reasoning, self.text) if part.strip())


class Message(NamedTuple):
    """One message of a chat.

    Attributes:
        role: ``user``, ``assistant``, ``system``, ``tool`` or another name.
        text: Its text; pictures and the like are named in brackets.
        call_id: The id of the tool call that it answers, or None.
        name: The name of the tool that it comes from, or None.
        failed: True if it reports that a tool failed.
    """

    role: str
    text: str
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    failed: bool = False


class Conversation:
    """The pending tool calls and the turns of one agent: the root's own, or those inside one tool.

    Args:
        role_of: Returns the role of a framework's message.
        read: Returns a framework's message as a `Message`.

    Attributes:
        follows: True if the run resumes an earlier one and no model has spoken since.
    """

    def __init__(
        self,
        role_of: Callable[[Any], str] = attrgetter("role"),
        read: Callable[[Any], Message] = lambda message: message,
    ) -> None:
        self.follows = False
        self._role_of, self._read = role_of, read
        self._lock = threading.RLock()  # several threads may update one conversation
        # by call id, which may repeat, until a tool begins
        self._announced: dict[str, list[ToolCall]] = {}
        self._begun: dict[str, Span] = {}  # calls whose tool spans report their results, or never
        self._reported: deque[str | None] = deque(maxlen=_MOST_CALLS)  # ids, or else the tools
        self._nameless = count()
        self._said: deque[str] = deque(maxlen=_REMEMBERED)
        self._heard: deque[str] = deque(maxlen=_REMEMBERED)

    @property
    def owed(self) -> Mapping[str, str]:
        """The tools of the calls without a result, by call id."""
        with self._lock:
            announced = {call_id: calls[-1].name for call_id, calls in self._announced.items()}
            begun = dict(self._begun)
        return announced | {call_id: span.tool or "" for call_id, span in begun.items()}

    @property
    def is_settled(self) -> bool:
        """True if no call waits for a result."""
        return not (self._announced or self._begun or self.follows)

    def expect(self, calls: Mapping[str, str]) -> None:
        """Add calls of an earlier run that still wait for a result."""
        with self._lock:
            for call_id, tool in calls.items():
                self._announce(call_id, ToolCall(tool, {}))

    def add_turn(self, turn: Turn) -> None:
        """Add a model's turn, and wait for the results of its calls."""
        self.follows = False
        if said := turn.message_id or turn.text:
            self._said.append(said)
        with self._lock:
            for call in turn.calls:
                if call.error is None:
                    call_id = call.id or f"nameless {next(self._nameless)}"
                    self._begun.pop(call_id, None)
                    self._announce(call_id, call)

    def begin(
        self, span: "Span", tool: str, call_id: str | None, inputs: object = None
    ) -> str | None:
        """Begin a tool, and return the id of the call announced for it, or None."""
        found = self._take(call_id, tool, inputs)
        if found is not None:
            call_id = found[0]
        elif call_id is None or call_id not in self._begun:
            return None
        self._begun[call_id] = span
        return call_id

    def end(self, tool: str | None, call_id: str | None) -> None:
        """Mark a call as answered; a failed call may begin again before that."""
        if call_id is not None:
            self._begun.pop(call_id, None)
        if self.follows:
            self._reported.append(call_id or tool)

    def unreported(self, messages: Sequence[object]) -> Sequence[Message]:
        """Return the results and user turns since the last model turn that no span reported."""
        if not messages or (self.is_settled and self._role_of(messages[-1]) == "tool"):
            return ()
        tail, said_last = self._tail(messages)
        follows_us = said_last is not None and said_last in self._said
        news: list[Message | None] = []
        for position, (role, message) in enumerate(tail):
            if role == "tool":
                news.append(self._result(self._read(message)))
            elif role == "user" and follows_us:
                place = f"{said_last}+{position}"
                if place not in self._heard:
                    self._heard.append(place)
                    said = self._read(message)
                    news.append(said if said.text else None)
        return [new for new in news if new is not None]

    def results(self, messages: Sequence[object]) -> Sequence[Message]:
        """Return the results of pending calls found in the messages of the root's output."""
        if self.is_settled:
            return ()
        tail, _ = self._tail(messages, to_the_beginning=not self.follows)
        results = (self._result(self._read(said)) for role, said in tail if role == "tool")
        return [result for result in results if result is not None]

    def asked(self, messages: Sequence[object]) -> str:
        """Return the texts of the user since the last assistant message."""
        users = (self._read(said) for role, said in self._tail(messages)[0] if role == "user")
        return " ".join(said.text for said in users if said.text)

    def _announce(self, call_id: str, call: ToolCall) -> None:
        calls = self._announced.setdefault(call_id, [])
        calls.append(call)
        if len(calls) > _MOST_CALLS:
            del calls[0]
        if len(self._announced) > _MOST_CALLS:
            del self._announced[next(iter(self._announced))]

    def _take(
        self, call_id: str | None, tool: str | None = None, inputs: object = None
    ) -> tuple[str, ToolCall] | None:
        """Remove and return the first announced call with this id, else of this tool and inputs."""
        if not self._announced:  # quicker than to wait for the lock
            return None
        with self._lock:
            if call_id is None:
                for pending_id, [call, *_] in self._announced.items():
                    if call.name == tool and (
                        not call.args or not isinstance(inputs, dict) or call.args == inputs
                    ):
                        call_id = pending_id
                        break
            if call_id is None or (calls := self._announced.get(call_id)) is None:
                return None
            call = calls.pop(0)
            if not calls:
                del self._announced[call_id]
            return call_id, call

    def _result(self, result: Message) -> Message | None:
        """Return the result if it is expected, with the name of its tool, else None."""
        call_id = result.call_id or ""
        span, found = self._begun.pop(call_id, None), self._take(call_id)
        tool = None if found is None else found[1].name
        if span is not None and not span.is_over:  # and never will be: it was given up
            tool, span.answered = span.tool, result.failed
        if tool is not None:
            return result._replace(name=tool)
        if not self.follows or call_id in self._reported:
            return None
        if result.name in self._reported:
            self._reported.remove(result.name)
            return None
        self._reported.append(call_id)
        return result

    def _tail(
        self, messages: Sequence[object], *, to_the_beginning: bool = False
    ) -> tuple[list[tuple[str, object]], str | None]:
        """Return the messages after the last model message, and that message's id or text."""
        tail: list[tuple[str, object]] = []
        said_last = None
        for message in islice(reversed(messages), _FARTHEST):
            role = self._role_of(message)
            if role == "assistant" and not to_the_beginning:
                said_last = getattr(message, "id", None)
                if said_last is None and type(message) is Message:
                    said_last = message.text or None
                break
            tail.append((role, message))
        tail.reverse()
        return tail, said_last


def text_of(content: object) -> str:
    """Return the text of a message's content: a text as it is, blocks one per line.

    >>> text_of([{"type": "text", "text": "Here:"}, {"type": "image"}]).splitlines()
    ['Here:', '[image]']
    """
    if isinstance(content, str):
        return content
    lines = []
    for block in content if isinstance(content, list) else ():
        match block:
            case str(said) | {"text": str(said)}:
                lines.append(said)
            case {"type": str(kind)}:
                lines.append(f"[{kind[:40]}]")
    return "\n".join(filter(None, lines))
