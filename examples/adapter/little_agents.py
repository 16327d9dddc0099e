"""A little agent framework, to write an adapter for.

Like the large ones, it notifies listeners in the run's thread and context, runs the tools of a
turn concurrently, lets an agent be the tool of another, and can be cancelled.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

_run_id: ContextVar[str | None] = ContextVar("little_agents_run_id", default=None)


class Call(NamedTuple):
    """A tool call that a model requests."""

    tool: str
    arguments: dict[str, Any]


class Turn(NamedTuple):
    """A model's turn; without calls, it is the answer."""

    text: str
    calls: Sequence[Call] = ()
    tokens: tuple[int, int] = (0, 0)


class Agent:
    """A model with tools.

    Args:
        name: The name that listeners get.
        model: Returns the next turn of a conversation.
        tools: Async functions by name, such as another agent's ``run``.
        listeners: Receive the events; see the calls below.
    """

    def __init__(
        self,
        name: str,
        model: Callable[[list[str]], Awaitable[Turn]],
        tools: dict[str, Callable[..., Awaitable[object]]],
        listeners: Sequence[Any] = (),
    ) -> None:
        self.name, self._model, self._tools, self._listeners = name, model, tools, listeners

    async def run(self, task: str) -> str:
        """Do a task; an error of a model or a tool ends it."""
        run_id = uuid.uuid4().hex
        parent_id = _run_id.get()
        token = _run_id.set(run_id)
        self._tell("on_start", run_id, parent_id, self.name, task)
        try:
            answer = await self._answer(run_id, task)
        except BaseException as error:
            self._tell("on_end", run_id, None, error)
            raise
        finally:
            _run_id.reset(token)
        self._tell("on_end", run_id, answer, None)
        return answer

    async def _answer(self, run_id: str, task: str) -> str:
        conversation = [task]
        while True:
            turn = await self._model(conversation)
            self._tell("on_model", run_id, turn.text, turn.tokens)
            if not turn.calls:
                return turn.text
            results = [self._call(run_id, call) for call in turn.calls]
            conversation += [str(result) for result in await asyncio.gather(*results)]

    async def _call(self, run_id: str, call: Call) -> object:
        call_id = uuid.uuid4().hex
        self._tell("on_tool", run_id, call_id, call.tool, call.arguments)
        try:
            result: object = await self._tools[call.tool](**call.arguments)
        except LookupError as error:
            self._tell("on_tool_end", run_id, call_id, call.tool, None, error)
            return f"there is none: {error}"  # the model may try another way
        except BaseException as error:
            self._tell("on_tool_end", run_id, call_id, call.tool, None, error)
            raise
        self._tell("on_tool_end", run_id, call_id, call.tool, result, None)
        return result

    def _tell(self, event: str, *what: object) -> None:
        for listener in self._listeners:
            getattr(listener, event)(*what)
