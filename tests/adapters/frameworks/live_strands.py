"""Strands Agents, by its own spans."""

import json

from scenes import Tools, kind_of, taken
from strands import Agent, tool
from strands.models.model import Model


def connect(provider, kp):
    """It asks the global provider."""


class Scripted(Model):
    def __init__(self, *turns):
        self.turns = list(turns)

    def update_config(self, **_):
        pass

    def get_config(self):
        return {"model_id": "scripted"}

    def structured_output(self, *_, **__):
        raise NotImplementedError  # abstract in Model; no scene asks for it

    async def stream(self, messages, tool_specs=None, system_prompt=None, **_):
        turn = taken(self.turns)
        yield {"messageStart": {"role": "assistant"}}
        for part in turn:
            start, deltas = blocks_of(part)
            yield {"contentBlockStart": {"start": start}}
            for delta in deltas:
                yield {"contentBlockDelta": {"delta": delta}}
            yield {"contentBlockStop": {}}
        calls = any(kind_of(part) == "call" for part in turn)
        yield {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}}
        usage = {"inputTokens": 100, "outputTokens": 20, "totalTokens": 120}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


def blocks_of(part):
    match kind_of(part):
        case "text":
            return {}, [{"text": f"{word} "} for word in part.split(" ")]
        case "thought":
            return {}, [{"reasoningContent": {"text": part[0]}}]
    start = {"toolUse": {"name": part[0], "toolUseId": part[2]}}
    return start, [{"toolUse": {"input": json.dumps(part[1])}}]


def agent_of(name, turns, tools):
    return Agent(model=Scripted(*turns), name=name, tools=tools, callback_handler=None)


def support(*turns):
    kit = Tools()
    agent = agent_of("support", turns, [tool(function) for function in kit.all()])
    agent.kit = kit
    return agent


def with_expert(turns, experts):
    expert = agent_of("expert", experts, [])

    @tool(name="expert")
    async def ask_expert(input: str) -> str:
        """Ask."""
        return str(await expert.invoke_async(input))

    return agent_of("desk", turns, [ask_expert])


async def ask(agent, *texts):
    for text in texts:
        await agent.invoke_async(text)


async def stream(agent, text, *, leave=False):
    events = agent.stream_async(text)
    async for event in events:
        if leave and "data" in event:
            break
    await events.aclose()
