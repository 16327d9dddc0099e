"""smolagents, by OpenInference's instrumentor; it has no async."""

import asyncio
import json

import httpx2
from openinference.instrumentation.smolagents import SmolagentsInstrumentor
from scenes import Tools, kind_of, taken
from smolagents import LogLevel, OpenAIModel, ToolCallingAgent, tool


def connect(provider, kp):
    SmolagentsInstrumentor().instrument(tracer_provider=provider)


class Completions(httpx2.BaseTransport):
    """Chat Completions, without a socket."""

    def __init__(self, *turns):
        self.turns = list(turns)

    def handle_request(self, request):
        try:
            turn = taken(self.turns)
        except ConnectionError as error:
            return httpx2.Response(400, json={"error": {"message": str(error)}}, request=request)
        calls = [
            {
                "id": part[2],
                "type": "function",
                "function": {"name": part[0], "arguments": json.dumps(part[1])},
            }
            for part in turn
            if kind_of(part) == "call"
        ]
        texts = " ".join(part for part in turn if kind_of(part) == "text")
        message = {"role": "assistant", "content": texts, "tool_calls": calls or None}
        body = {
            "id": "c",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": "scripted",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
        }
        return httpx2.Response(200, json=body, request=request)


def answering(turn):
    """A turn in which no tool is called is the answer, for which this framework has a tool."""
    if isinstance(turn, list) and {*map(kind_of, turn)} == {"text"}:
        return [("final_answer", {"answer": turn[0]}, "last")]
    return turn


def model(*turns):
    client = httpx2.Client(transport=Completions(*map(answering, turns)))
    given = {"http_client": client, "max_retries": 0}
    where = "http://model.invalid/v1"
    return OpenAIModel("scripted", api_base=where, api_key="none", client_kwargs=given)


def agent_of(name, turns, tools, **more):
    return ToolCallingAgent(
        tools=tools,
        model=model(*turns),
        name=name,
        description="d",
        verbosity_level=LogLevel.OFF,
        **more,
    )


def support(*turns):
    kit = Tools()
    agents = []

    def wait() -> str:
        """Wait."""
        agents[0].interrupt()  # the one way to stop it
        return "waited"

    *others, _ = kit.all()
    agents.append(agent_of("support", turns, [tool(one) for one in [*others, wait]]))
    return agents[0]


def with_expert(turns, experts):
    return agent_of("desk", turns, [], managed_agents=[agent_of("expert", experts, [])])


async def ask(agent, *texts):
    for number, text in enumerate(texts):
        await asyncio.to_thread(agent.run, text, reset=number == 0)


async def stream(agent, text, *, leave=False):
    steps = agent.run(text, stream=True)
    for _ in steps:
        if leave:
            break
    steps.close()
