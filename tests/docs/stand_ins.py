"""Stand-ins for what the pages' snippets need: a provider's model, an agent, a pipeline."""

from types import ModuleType
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

_OF_TYPE = {"string": "Mont Blanc", "integer": 1, "array": ["Mont Blanc"]}


class ObedientModel(BaseChatModel):
    """Calls each of its tools once, one after another, and then answers."""

    model: str = "obedient"
    tools: tuple[dict[str, Any], ...] = ()

    @property
    def _llm_type(self) -> str:
        return "obedient"

    def bind_tools(self, tools: list[Any], **_: Any) -> "ObedientModel":
        """The same, with tools to call."""
        return self.model_copy(update={"tools": tuple(map(convert_to_openai_tool, tools))})

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        turn = sum(message.type == "tool" for message in messages)
        calls = [_call(tool["function"], turn) for tool in self.tools[turn : turn + 1]]
        said = AIMessage(f"The next is number {turn}.", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=said)])


def _call(tool: dict[str, Any], turn: int) -> dict[str, Any]:
    arguments = tool["parameters"]["properties"]
    values = {name: _OF_TYPE[kind["type"]] for name, kind in arguments.items()}
    return {"name": tool["name"], "args": values, "id": f"call {turn}"}


def provider() -> ModuleType:
    """Stands in for ``langchain_openai``, which asks a model over the network."""
    module = ModuleType("langchain_openai")
    module.ChatOpenAI = ObedientModel
    return module


def agent() -> Any:
    """An agent with one tool."""

    def look(word: str) -> str:
        """Look a word up."""
        return f"a page about {word}"

    return create_agent(ObedientModel(), [look])
