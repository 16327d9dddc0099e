"""The state of one agent's conversation: pending tool calls and recorded turns."""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Final

from kp_langchain._messages import Message, messages_of, newest_first, read, role_of
from kp_langchain._turns import Call, Turn
from kp_middleware.recording import Span, shield

_MOST_CALLS: Final = 1024  # that may wait for a result, of models whose calls nobody runs
_REMEMBERED: Final = 64  # messages: enough to know the last turns of agents that talk in parallel


class Conversation:
    """The tool calls and turns of one scope: the root's own, or those inside one tool.

    Attributes:
        follows: Whether the run goes on with an earlier one, and no model has spoken since: calls
            may have been announced that we were not told of.
    """

    def __init__(self) -> None:
        self.follows = False
        self._lock = threading.RLock()  # several threads may update one ledger
        self._announced: dict[str, deque[Call]] = {}  # until a tool run begins; ids need not differ
        self._begun: dict[str, Span] = {}  # calls whose tool runs report their results, or never
        self._reported: deque[str | None] = deque(maxlen=_MOST_CALLS)  # ids, or else the tools
        self._nameless = count()
        self._said: deque[str] = deque(maxlen=_REMEMBERED)
        self._heard: deque[str] = deque(maxlen=_REMEMBERED)

    @property
    def owed(self) -> Mapping[str, str]:
        """The tools of the calls without a result, by call id."""
        with self._lock:
            announced = {call_id: calls[0].name for call_id, calls in self._announced.items()}
            begun = {call_id: run.tool or "" for call_id, run in dict(self._begun).items()}
            return {**announced, **begun}

    def expect(self, calls: Mapping[str, str]) -> None:
        """Add calls of an earlier run that still wait for a result."""
        for call_id, tool in calls.items():
            self._await(call_id, Call(tool, {}))

    def add_turn(self, turn: Turn) -> None:
        """Add a model's turn, and wait for the results of its calls."""
        self.follows = False
        if turn.message_id is not None:
            self._said.append(turn.message_id)
        for call in turn.calls:
            if call.error is None:
                call_id = call.id or f"nameless {next(self._nameless)}"
                self._begun.pop(call_id, None)
                self._await(call_id, call)

    def begin(
        self, run: "Span", tool: str, call_id: str | None, inputs: object = None
    ) -> str | None:
        """Begin a tool run, and return the id of the call announced for it, or None."""
        if call_id is None:  # before langchain-core 1.1.3, and in AgentExecutor
            call_id = self._first_for(tool, inputs)
        elif self._take(call_id) is None and call_id not in self._begun:
            return None
        if call_id is not None:
            self._begun[call_id] = run
        return call_id

    def end(self, tool: str | None, call_id: str | None) -> None:
        """Mark a call as answered; a failed call may begin again before that."""
        if call_id is not None:
            self._begun.pop(call_id, None)
        if self.follows:
            self._reported.append(call_id or tool)

    def unreported(self, messages: Sequence[object]) -> Sequence[Message]:
        """Return the results and human turns since the last model turn that no event reported."""
        owes_nothing = not (self._announced or self._begun or self.follows)
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
        """Return the results of pending calls found in the root's output."""
        if not (self._announced or self._begun or self.follows):
            return ()
        messages = messages_of(output)
        conversation = _tail(messages)[0] if self.follows else [*newest_first(messages)][::-1]
        results = [self._new(message, None) for message in conversation]
        return [message for message in results if message is not None]

    def _await(self, call_id: str, call: Call) -> None:
        with self._lock:
            if len(self._announced) >= _MOST_CALLS:
                del self._announced[next(iter(self._announced))]
            self._announced.setdefault(call_id, deque(maxlen=_MOST_CALLS)).append(call)

    def _take(self, call_id: str) -> str | None:
        """Remove an announced call, and return its tool, or None."""
        if call_id not in self._announced:  # quicker than to wait for the lock
            return None
        with self._lock:
            calls = self._announced.get(call_id)
            if calls is None:
                return None
            call = calls.popleft()
            if not calls:
                del self._announced[call_id]
            return call.name

    def _first_for(self, tool: str, inputs: object) -> str | None:
        """Remove the first announced call that matches, and return its id, or None."""
        with self._lock:
            for call_id, calls in self._announced.items():
                if calls[0].name == tool and _asks(calls[0], inputs):
                    self._take(call_id)
                    return call_id
        return None

    def _new(self, message: object, place: str | None) -> Message | None:
        """Return the message if it is an expected result or a new human turn, else None."""
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
        run = self._begun.pop(call_id, None)
        tool = self._take(call_id)
        result = read(message)
        if run is not None and not run.is_over:  # and never will be: it was given up
            tool, run.answered = run.tool, result.failed
        if tool is not None:
            return result._replace(name=tool)
        if not self.follows or call_id in self._reported:
            return None
        if result.name in self._reported:
            self._reported.remove(result.name)
            return None
        self._reported.append(call_id)
        return result


def _asks(call: Call, inputs: object) -> bool:
    """Return whether the call's arguments match the tool's inputs, as far as both are known."""
    return not call.args or not isinstance(inputs, dict) or call.args == inputs


def _tail(messages: Sequence[object]) -> tuple[list[object], str | None]:
    """Return the messages after the last model message, and that message's id."""
    tail: list[object] = []
    for message in newest_first(messages):
        if role_of(message) == "ai":
            return tail[::-1], getattr(message, "id", None)
        tail.append(message)
    return tail[::-1], None
