"""The agent middleware that quotes a past run before the task. Needs langchain."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, NotRequired

from kp_langchain._messages import QUOTE, read, role_of
from kp_langchain._recall import quotes
from kp_langchain._runs import default_pulse
from kp_middleware.errors import MissingExtraError
from kp_middleware.recording import current_recorder

try:
    from langchain.agents.middleware import AgentMiddleware, AgentState
    from langchain.agents.middleware.types import PrivateStateAttr
    from langchain_core.messages import HumanMessage
except ModuleNotFoundError as exc:
    raise MissingExtraError("langchain") from exc

if TYPE_CHECKING:
    from langchain.agents.middleware.types import ModelRequest, ModelResponse
    from langgraph.runtime import Runtime

    from kp_middleware import KnowledgePulse


class RecallState(AgentState[Any]):
    """The agent's state, with the quote for this turn."""

    kp_quote: NotRequired[Annotated[str, PrivateStateAttr]]


if TYPE_CHECKING:
    Middleware = AgentMiddleware[RecallState, Any, Any]
else:
    Middleware = AgentMiddleware  # its number of parameters differs between versions


class KPRecallMiddleware(Middleware):
    """Quote a past run that succeeded at a task like this one, before the last human message.

    It searches once, before the agent starts. The quote is data in a human message, never in the
    system prompt; only the model gets it, not the state's messages or the recorded run. Without a
    match, nothing is quoted.

    Args:
        kp: As in `KPRetriever`; likewise ``k``, ``domain`` and ``max_age_days``.
        owner: The same, or a function of LangGraph's runtime that returns it. The recorded run
            gets this owner, too.

    Example:
        ``create_agent(model, tools, middleware=[KPRecallMiddleware(kp)])``
    """

    state_schema = RecallState

    def __init__(
        self,
        kp: "KnowledgePulse | None" = None,
        *,
        k: int = 1,
        domain: str | None = None,
        owner: "str | Callable[[Runtime[Any]], str | None] | None" = None,
        max_age_days: float | None = None,
    ) -> None:
        super().__init__()
        self._kp = default_pulse() if kp is None else kp
        self._kp.warm_up_recall()
        self._owner = owner
        self._terms: Any = {"k": k, "domain": domain, "max_age_days": max_age_days}

    def before_agent(self, state: RecallState, runtime: "Runtime[Any]") -> dict[str, Any]:
        """Look for a past run."""
        owner = self._owner(runtime) if callable(self._owner) else self._owner
        if owner is not None and (recorder := current_recorder()) is not None:
            recorder.owner = owner
        user_texts = [
            read(message).text for message in state["messages"] if role_of(message) == "user"
        ]
        # the user's last turns, in which a task often becomes clear; then the last alone
        tasks = dict.fromkeys(["\n".join(user_texts[-3:]), *user_texts[-1:]])
        recalled = (self._kp.recall(task, owner=owner, **self._terms) for task in tasks)
        found = next(filter(None, recalled), [])
        return {"kp_quote": quotes(found)}  # also if empty: a thread's state keeps the last one

    async def abefore_agent(self, state: RecallState, runtime: "Runtime[Any]") -> dict[str, Any]:
        """Look for a past run, without blocking the event loop."""
        return await asyncio.to_thread(self.before_agent, state, runtime)

    def wrap_model_call(
        self,
        request: "ModelRequest[Any]",
        handler: "Callable[[ModelRequest[Any]], ModelResponse[Any]]",
    ) -> "ModelResponse[Any]":
        """Show the model the quote."""
        return handler(_quoting(request))

    async def awrap_model_call(
        self,
        request: "ModelRequest[Any]",
        handler: "Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]",
    ) -> "ModelResponse[Any]":
        """Show the model the quote."""
        return await handler(_quoting(request))


def _quoting(request: "ModelRequest[Any]") -> "ModelRequest[Any]":
    quote = request.state.get("kp_quote")
    messages = request.messages
    people = [place for place, one in enumerate(messages) if role_of(one) == "user"]
    if not quote or not people:
        return request
    message = HumanMessage(str(quote), additional_kwargs={"lc_source": QUOTE})
    return request.override(messages=[*messages[: people[-1]], message, *messages[people[-1] :]])
