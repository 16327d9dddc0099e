"""Microsoft's Agent Framework, by its own spans."""

import gc
import json

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    UsageDetails,
)
from agent_framework.observability import ChatTelemetryLayer, enable_instrumentation
from scenes import Tools, kind_of, taken


def connect(provider, kp):
    enable_instrumentation(enable_sensitive_data=True)


def content_of(part):
    match kind_of(part):
        case "text":
            return Content.from_text(part)
        case "thought":
            return Content.from_text_reasoning(text=part[0])
    return Content.from_function_call(call_id=part[2], name=part[0], arguments=json.dumps(part[1]))


class Scripted(FunctionInvocationLayer, ChatTelemetryLayer, BaseChatClient):
    OTEL_PROVIDER_NAME = "scripted"

    def __init__(self, *turns):
        super().__init__()
        self.turns, self.model = list(turns), "scripted"

    def _inner_get_response(self, *, messages, stream, options, **_):
        usage = UsageDetails(input_token_count=100, output_token_count=20, total_token_count=120)
        if stream:

            async def updates():
                for content in [*map(content_of, taken(self.turns)), Content.from_usage(usage)]:
                    yield ChatResponseUpdate(role="assistant", contents=[content], response_id="r")

            return ResponseStream(updates(), finalizer=ChatResponse.from_updates)

        async def answer():
            said = Message(role="assistant", contents=[*map(content_of, taken(self.turns))])
            return ChatResponse(messages=[said], response_id="r", usage_details=usage)

        return answer()


def support(*turns):
    kit = Tools()
    agent = Agent(client=Scripted(*turns), name="support", tools=[*kit.all()])
    agent.kit = kit
    return agent


def with_expert(turns, experts):
    expert = Agent(client=Scripted(*experts), name="expert")
    return Agent(client=Scripted(*turns), name="desk", tools=[expert.as_tool(arg_name="input")])


async def ask(agent, *texts):
    session = agent.create_session()
    for text in texts:
        await agent.run(text, session=session)


async def stream(agent, text, *, leave=False):
    updates = agent.run(text, stream=True)
    async for _ in updates:
        if leave:
            break
    del updates
    gc.collect()  # its spans end with it
