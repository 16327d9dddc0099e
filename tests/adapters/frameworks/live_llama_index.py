"""LlamaIndex, by OpenInference's instrumentor."""

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, LLMMetadata, MessageRole
from llama_index.core.llms.callbacks import llm_chat_callback
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.workflow import Context
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
from scenes import Desk, Tools, kind_of, taken


def connect(provider, kp):
    LlamaIndexInstrumentor().instrument(tracer_provider=provider)


class Scripted(FunctionCallingLLM):
    turns: list

    @property
    def metadata(self):
        return LLMMetadata(model_name="scripted", is_function_calling_model=True)

    def _answer(self):
        turn = taken(self.turns)
        text = " ".join(part for part in turn if kind_of(part) == "text")
        calls = [
            ToolSelection(tool_id=part[2], tool_name=part[0], tool_kwargs=part[1])
            for part in turn
            if kind_of(part) == "call"
        ]
        more = {"tool_calls": calls}
        said = ChatMessage(role=MessageRole.ASSISTANT, content=text, additional_kwargs=more)
        return ChatResponse(message=said, delta=text)

    def get_tool_calls_from_response(self, response, error_on_no_tool_call=False, **_):
        return response.message.additional_kwargs.get("tool_calls") or []

    def _prepare_chat_with_tools(self, tools, user_msg=None, chat_history=None, **_):
        return {"messages": chat_history or []}

    @llm_chat_callback()
    async def astream_chat(self, messages, **_):
        async def chunks():
            yield self._answer()

        return chunks()

    async def astream_chat_with_tools(self, tools, user_msg=None, chat_history=None, **_):
        return await self.astream_chat(chat_history)

    def _never(self, *_, **__):
        raise NotImplementedError  # abstract in LLM; an agent streams with tools

    chat = complete = acomplete = achat = stream_chat = _never
    stream_complete = astream_complete = _never


def agent_of(name, turns, tools):
    llm = Scripted(turns=list(turns))
    return FunctionAgent(name=name, description="d", tools=tools, llm=llm, system_prompt="Help.")


def support(*turns):
    kit = Tools()
    return Desk(agent_of("support", turns, [*kit.all()]), kit)


def with_expert(turns, experts):
    expert = agent_of("expert", experts, [])

    async def ask_expert(input: str) -> str:
        """Ask."""
        return str(await expert.run(user_msg=input))

    ask_expert.__name__ = "expert"
    return Desk(agent_of("desk", turns, [ask_expert]))


async def ask(agent, *texts):
    context = Context(agent.agent)
    for text in texts:
        await agent.agent.run(user_msg=text, ctx=context)


async def stream(agent, text, *, leave=False):
    handler = agent.agent.run(user_msg=text)
    async for _ in handler.stream_events():
        if leave:
            await handler.cancel_run()
            break
    try:
        await handler
    except BaseException:
        if not leave:
            raise
