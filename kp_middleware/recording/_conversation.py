"""Model turns, chat messages, and the new messages in a history that each call repeats."""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import count, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from kp_middleware.recording._spans import Span

_MAX_CALLS: Final = 1024  # some agents never run the calls of their model
_MAX_REMEMBERED: Final = 64  # messages: enough for the last turns of parallel agents


class ToolCall(NamedTuple):
    """A tool call requested by a model; ``error`` is set if its arguments are invalid."""

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
        calls: The tool calls that it requests.
        served: The calls and results of the provider's own tools, in order.
        tokens: The numbers of input and output tokens, or None.
        message_id: The id of its message, or None.
        unfinished: The provider's finish reason if the answer is incomplete, or None.
        thoughts: Its reasoning and text as separate steps; by default they are one step.
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
        """The reasoning and the text, without blank parts."""
        return "\n\n".join(part for part in (self.reasoning, self.text) if part.strip())


class Message(NamedTuple):
    """One message of a chat.

    Attributes:
        role: ``user``, ``assistant``, ``system``, ``tool`` or another name.
        text: Its text; other content, such as images, is named in brackets.
        call_id: The id of the tool call that it answers, or None.
        name: The name of the tool that sent it, or None.
        failed: True if it reports a tool's failure.
    """

    role: str
    text: str
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    failed: bool = False


class Conversation:
    """The turns and pending tool calls of one agent: the root's, or the one inside a tool.

    Args:
        role_of: Returns the role of a framework's message.
        read: Returns a framework's message as a `Message`.

    Attributes:
        follows: True if the run resumes an earlier one, until its first model turn.
    """

    def __init__(
        self,
        role_of: Callable[[Any], str] = attrgetter("role"),
        read: Callable[[Any], Message] = lambda message: message,
    ) -> None:
        self.follows = False
        self._role_of, self._read = role_of, read
        self._lock = threading.RLock()  # several threads may update one conversation
        # by call id, which may repeat; a call is removed when its tool begins
        self._pending: dict[str, list[ToolCall]] = {}
        # by call id; each span reports its result, if any
        self._running_calls: dict[str, Span] = {}
        self._reported: deque[str | None] = deque(maxlen=_MAX_CALLS)  # ids, or else tools
        self._unnamed_ids = count()
        self._model_messages: deque[str] = deque(maxlen=_MAX_REMEMBERED)
        self._user_messages: deque[str] = deque(maxlen=_MAX_REMEMBERED)

    @property
    def pending_calls(self) -> Mapping[str, str]:
        """The tools of the calls without a result, by call id."""
        with self._lock:
            pending = {call_id: calls[-1].name for call_id, calls in self._pending.items()}
            running = dict(self._running_calls)
        return pending | {call_id: span.tool or "" for call_id, span in running.items()}

    @property
    def is_settled(self) -> bool:
        """True if no call is pending."""
        return not (self._pending or self._running_calls or self.follows)

    def expect(self, calls: Mapping[str, str]) -> None:
        """Add the pending calls of an earlier run."""
        with self._lock:
            for call_id, tool in calls.items():
                self._add_pending(call_id, ToolCall(tool, {}))

    def add_turn(self, turn: Turn) -> None:
        """Add a model's turn; its calls are pending until they have a result."""
        self.follows = False
        if message_id := turn.message_id or turn.text:
            self._model_messages.append(message_id)
        with self._lock:
            for call in turn.calls:
                if call.error is None:
                    call_id = call.id or f"nameless {next(self._unnamed_ids)}"
                    self._running_calls.pop(call_id, None)
                    self._add_pending(call_id, call)

    def has_turn(self, message_id: str | None) -> bool:
        """Return True if a model wrote this message, as far as is remembered."""
        return message_id in self._model_messages

    def begin(
        self, span: "Span", tool: str, call_id: str | None, inputs: object = None
    ) -> str | None:
        """Begin a tool, and return the id of its pending call, or None."""
        taken = self._take(call_id, tool, inputs) if self._pending else None
        if taken is not None:
            call_id = taken[0]
        elif call_id is None or call_id not in self._running_calls:
            return None
        self._running_calls[call_id] = span
        return call_id

    def end(self, tool: str | None, call_id: str | None) -> None:
        """Mark a call as answered."""
        if call_id is not None:
            self._running_calls.pop(call_id, None)
        if self.follows:
            self._reported.append(call_id or tool)

    def unreported(self, messages: Sequence[object]) -> Sequence[Message]:
        """Return the tool results and user messages after the last model turn that are new."""
        if not messages or (self.is_settled and self._role_of(messages[-1]) == "tool"):
            return ()
        tail, last_model_message = self._tail(messages)
        is_ours = last_model_message is not None and last_model_message in self._model_messages
        new_messages: list[Message | None] = []
        for position, (role, message) in enumerate(tail):
            if role == "tool":
                new_messages.append(self._result(self._read(message)))
            elif role == "user" and is_ours:
                key = f"{last_model_message}+{position}"
                if key not in self._user_messages:
                    self._user_messages.append(key)
                    user_message = self._read(message)
                    new_messages.append(user_message if user_message.text else None)
        return [message for message in new_messages if message is not None]

    def results(self, messages: Sequence[object]) -> Sequence[Message]:
        """Return the results of pending calls found in the messages of the root's output."""
        if self.is_settled:
            return ()
        tail, _ = self._tail(messages, whole=not self.follows)
        results = (self._result(self._read(message)) for role, message in tail if role == "tool")
        return [result for result in results if result is not None]

    def user_text(self, messages: Sequence[object]) -> str:
        """Return the texts of the user since the last assistant message."""
        users = (self._read(message) for role, message in self._tail(messages)[0] if role == "user")
        return " ".join(user.text for user in users if user.text)

    def _add_pending(self, call_id: str, call: ToolCall) -> None:
        self._pending.setdefault(call_id, []).append(call)
        if len(self._pending) > _MAX_CALLS:
            del self._pending[next(iter(self._pending))]

    def _take(
        self, call_id: str | None, tool: str | None = None, inputs: object = None
    ) -> tuple[str, ToolCall] | None:
        """Remove and return the pending call with this id, or with this tool and inputs."""
        with self._lock:
            if call_id is None:
                for pending_id, [call, *_] in self._pending.items():
                    if call.name == tool and (
                        not call.args or not isinstance(inputs, dict) or call.args == inputs
                    ):
                        call_id = pending_id
                        break
            if call_id is None or (calls := self._pending.get(call_id)) is None:
                return None
            call = calls.pop(0)
            if not calls:
                del self._pending[call_id]
            return call_id, call

    def _result(self, result: Message) -> Message | None:
        """Return a result with the name of its tool, or None if it is not pending or known."""
        call_id = result.call_id or ""
        span, taken = self._running_calls.pop(call_id, None), self._take(call_id)
        tool = None if taken is None else taken[1].name
        if span is not None and not span.is_over:  # it was given up
            tool, span.answered = span.tool, result.failed
        if tool is not None:
            return Message(*result[:4], tool, result.failed)  # quicker than `_replace`
        if not self.follows or call_id in self._reported:
            return None
        if result.name in self._reported:
            self._reported.remove(result.name)
            return None
        self._reported.append(call_id)
        return result

    def _tail(
        self, messages: Sequence[object], *, whole: bool = False
    ) -> tuple[list[tuple[str, object]], str | None]:
        """Return the messages after the last model message, and that message's id or text."""
        tail: list[tuple[str, object]] = []
        last_model_message = None
        for message in islice(reversed(messages), 1000):
            role = self._role_of(message)
            if role == "assistant" and not whole:
                last_model_message = getattr(message, "id", None)
                if last_model_message is None and type(message) is Message:
                    last_model_message = message.text or None
                break
            tail.append((role, message))
        tail.reverse()
        return tail, last_model_message


def text_of(content: object) -> str:
    """Return the text of a message's content; blocks are one per line.

    >>> text_of([{"type": "text", "text": "Here:"}, {"type": "image"}]).splitlines()
    ['Here:', '[image]']
    """
    if isinstance(content, str):
        return content
    lines = []
    for block in content if isinstance(content, list) else ():
        match block:
            case str(text) | {"text": str(text)}:
                lines.append(text)
            case {"type": str(kind)}:
                lines.append(f"[{kind[:40]}]")
    return "\n".join(filter(None, lines))
