# ruff: noqa: ARG002 - LangChain's own signatures
"""Chat models that follow a script, for tests."""

import json
import re
from collections.abc import Iterator
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, BaseLLM
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import (
    ChatGeneration,
    ChatGenerationChunk,
    ChatResult,
    Generation,
    LLMResult,
)
from pydantic import PrivateAttr


class ScriptedModel(BaseChatModel):
    """Says the next turn of its script: the first where no AI message is in the conversation."""

    turns: list[Any]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> "ScriptedModel":
        return self

    def _turn(self, messages: list[BaseMessage]) -> AIMessage:
        spoken = sum(message.type == "ai" for message in messages)
        return self.turns[spoken].model_copy(deep=True)

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._turn(messages))])


class StreamingModel(ScriptedModel):
    """The same, word by word."""

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> Iterator[ChatGenerationChunk]:
        turn = self._turn(messages)
        for word in re.findall(r"\s*\S+", turn.text):
            yield ChatGenerationChunk(message=AIMessageChunk(word))
        calls = [
            {"name": c["name"], "args": json.dumps(c["args"]), "id": c["id"], "index": number}
            for number, c in enumerate(turn.tool_calls)
        ]
        last = AIMessageChunk("", tool_call_chunks=calls, response_metadata=turn.response_metadata)
        yield ChatGenerationChunk(message=last)


class FlakyModel(ScriptedModel):
    """Fails with these first, one for each call, then follows its script."""

    errors: list[str]
    _calls: int = PrivateAttr(default=0)

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self._calls += 1
        if self._calls <= len(self.errors):
            raise ConnectionError(self.errors[self._calls - 1])
        return super()._generate(messages)


class CompletingModel(BaseLLM):
    """Completes every prompt with the same words, of which a provider tells this."""

    words: str
    info: dict[str, Any]

    @property
    def _llm_type(self) -> str:
        return "completing"

    def _generate(self, prompts: list[str], *_: Any, **__: Any) -> LLMResult:
        return LLMResult(generations=[[Generation(text=self.words, generation_info=self.info)]])


def calls(text: str = "", **args_by_tool: dict[str, Any]) -> AIMessage:
    """A turn that calls tools: ``calls("I add.", add={"a": 1, "b": 2})``."""
    return AIMessage(
        text,
        tool_calls=[
            {"name": tool, "args": args, "id": f"call-{tool}-{json.dumps(args)}"}
            for tool, args in args_by_tool.items()
        ],
    )


def answer_of(text: str) -> AIMessage:
    """A turn that only speaks."""
    return AIMessage(text)
