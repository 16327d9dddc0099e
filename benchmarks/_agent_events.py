"""The events of a LangChain agent of twenty turns: one by one, and as a whole run."""

from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult, LLMResult
from langchain_core.tools import tool

TURNS: Final = 20
CALL: Final = {"name": "look_up", "args": {"query": "item " * 16}, "id": "c1", "type": "tool_call"}
SAID: Final = AIMessage("I should look the next item up. " * 10, tool_calls=[CALL])
RESULT: Final = ToolMessage("row " * 200, tool_call_id="c1")
HISTORY: Final[list[BaseMessage]] = [HumanMessage("What is the answer?"), *[SAID, RESULT] * 10]
ANSWER: Final = LLMResult(generations=[[ChatGeneration(message=SAID)]])


def chain(parent: Any) -> None:
    """Run a node of a graph."""
    parent.on_chain_start(None, {"messages": HISTORY}, name="node").on_chain_end({})


def model(parent: Any) -> None:
    """Run a chat model that reads ten turns."""
    (run,) = parent.on_chat_model_start(
        {"name": "model"}, [HISTORY], invocation_params={"_type": "scripted"}, options={}
    )
    run.on_llm_end(ANSWER)


def run_tool(parent: Any) -> None:
    """Run a tool that a model called."""
    run = parent.on_tool_start({"name": "look_up"}, "", inputs=CALL["args"], tool_call_id="c1")
    run.on_tool_end(RESULT)


async def run_async_tool(parent: Any) -> None:
    """Run the tool in an event loop."""
    run = await parent.on_tool_start({"name": "look_up"}, "", inputs=CALL["args"])
    await run.on_tool_end(RESULT)


class Scripted(BaseChatModel):
    """A model that calls its tool twenty times, then answers."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> "Scripted":
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        turn = len(messages) // 2
        call = {**CALL, "id": f"c{turn}"}
        said = AIMessage(SAID.text, tool_calls=[call]) if turn < TURNS else AIMessage("Done.")
        return ChatResult(generations=[ChatGeneration(message=said)])


@tool
def look_up(query: str) -> str:
    """Look something up."""
    return f"{query}: found " * 20


@tool("look_up")
async def look_up_async(query: str) -> str:
    """Look something up."""
    return f"{query}: found " * 20
