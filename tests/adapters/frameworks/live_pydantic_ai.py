"""Pydantic AI, by its own spans."""

import json

from pydantic_ai import Agent, InstrumentationSettings, ModelRetry
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import DeltaThinkingPart, DeltaToolCall, FunctionModel
from scenes import Tools, kind_of, taken


def connect(provider, kp):
    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))


def part_of(part):
    match kind_of(part):
        case "text":
            return TextPart(part)
        case "thought":
            return ThinkingPart(part[0])
    return ToolCallPart(part[0], part[1], tool_call_id=part[2])


def model(*turns):
    left = list(turns)

    def answer(messages, info):
        return ModelResponse(parts=[part_of(part) for part in taken(left)])

    async def stream(messages, info):
        for index, part in enumerate(taken(left)):
            match kind_of(part):
                case "text":
                    for word in part.split():
                        yield word + " "
                case "thought":
                    yield {index: DeltaThinkingPart(content=part[0])}
                case _:
                    yield {index: DeltaToolCall(part[0], json.dumps(part[1]), tool_call_id=part[2])}

    return FunctionModel(answer, stream_function=stream, model_name="scripted")


def support(*turns):
    agent = Agent(model(*turns), name="support")
    agent.kit = Tools(ModelRetry)
    for function in agent.kit.all():
        agent.tool_plain(function, retries=2)
    return agent


def with_expert(turns, experts):
    expert = Agent(model(*experts), name="expert")
    agent = Agent(model(*turns), name="desk")

    @agent.tool_plain(name="expert")
    async def ask_expert(input: str) -> str:
        """Ask the expert."""
        return (await expert.run(input)).output

    return agent


async def ask(agent, *texts):
    history = None
    for text in texts:
        history = (await agent.run(text, message_history=history)).all_messages()


async def stream(agent, text, *, leave=False):
    async with agent.run_stream_events(text) as events:
        async for _ in events:
            if leave:
                break
