"""What one agent's conversation owes: tool calls that wait for a result, turns already noted.

Several threads may tell one ledger: each change is a single, atomic operation on a dict or a deque.
"""

from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import Final

from kp_langchain._messages import Message, messages_of, newest_first, read, role_of
from kp_langchain._turns import Turn
from kp_middleware.recording import shield

_REMEMBERED: Final = 64  # messages: enough to know the last turns of agents that talk in parallel


class Ledger:
    """The tool calls and turns of one scope: the root's own, or those inside one tool."""

    def __init__(self) -> None:
        self._announced: dict[str, str] = {}  # id of a call: its tool, until a tool run begins
        self._begun: dict[str, None] = {}  # ids of calls whose tool runs report their results
        self._nameless = count()
        self._said: deque[str] = deque(maxlen=_REMEMBERED)
        self._heard: deque[str] = deque(maxlen=_REMEMBERED)

    def announce(self, turn: Turn) -> None:
        """A model spoke."""
        if turn.message_id is not None:
            self._said.append(turn.message_id)
        for call in turn.calls:
            if call.error is None:
                call_id = call.id or f"nameless {next(self._nameless)}"
                self._begun.pop(call_id, None)
                self._announced[call_id] = call.name

    def begin(self, tool: str, call_id: str | None) -> str | None:
        """A tool run began; the id of the call that was announced for it, or None if none was."""
        if call_id is None:
            call_id = self._announced_first(tool)
        elif call_id not in self._begun and self._announced.pop(call_id, None) is None:
            return None
        if call_id is not None:
            self._begun[call_id] = None
        return call_id

    def end(self, call_id: str | None) -> None:
        """The call has its result; a call that failed may be begun again before that."""
        self._begun.pop(call_id or "", None)

    def news(self, messages: Sequence[object]) -> Sequence[Message]:
        """What came since a model last spoke, and no event told: results and later human turns."""
        owes_nothing = not self._announced and not self._begun
        if not messages or (owes_nothing and role_of(messages[-1]) == "tool"):
            return ()
        tail, said_last = _tail(messages)
        follows_us = said_last is not None and said_last in self._said
        news = [
            self._new(message, f"{said_last}+{position}" if follows_us else None)
            for position, message in enumerate(tail)
        ]
        return [message for message in news if message is not None]

    @shield
    def results(self, output: object) -> Sequence[Message]:
        """What the root's output says of calls that still wait."""
        if not self._announced:
            return ()
        conversation = reversed([*newest_first(messages_of(output))])
        results = [self._new(message, None) for message in conversation]
        return [message for message in results if message is not None]

    def _announced_first(self, tool: str) -> str | None:
        """Before langchain-core 1.1.3 and in AgentExecutor, a tool run does not say its call."""
        for call_id, name in list(self._announced.items()):
            if name == tool and self._announced.pop(call_id, None) is not None:
                return call_id
        return None

    def _new(self, message: object, place: str | None) -> Message | None:
        """The message, if it is a result that was waited for, or a human turn that is news."""
        match role_of(message):
            case "tool":
                return self._result(message)
            case "human" if place is not None and place not in self._heard:
                self._heard.append(place)
                said = read(message)
                return said if said.text else None
        return None

    def _result(self, message: object) -> Message | None:
        call_id = getattr(message, "tool_call_id", "")
        self._begun.pop(call_id, None)
        tool = self._announced.pop(call_id, None)
        return None if tool is None else read(message)._replace(name=tool)


def _tail(messages: Sequence[object]) -> tuple[list[object], str | None]:
    """The messages after the last one of a model, and that one's id."""
    tail: list[object] = []
    for message in newest_first(messages):
        if role_of(message) == "ai":
            return tail[::-1], getattr(message, "id", None)
        tail.append(message)
    return tail[::-1], None
