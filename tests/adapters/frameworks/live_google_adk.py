"""Google's ADK, by its own spans."""

import os

os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "SPAN_AND_EVENT"

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.agent_tool import AgentTool
from google.genai import types
from scenes import Desk, Tools, kind_of, taken


def connect(provider, kp):
    """It asks the global provider."""


def part_of(part):
    match kind_of(part):
        case "text":
            return types.Part(text=part)
        case "thought":
            return types.Part(text=part[0], thought=True)
    called = types.FunctionCall(id=part[2], name=part[0], args=part[1])
    return types.Part(function_call=called)


class Scripted(BaseLlm):
    turns: list

    async def generate_content_async(self, llm_request, stream=False):
        parts = [part_of(part) for part in taken(self.turns)]
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=100, candidates_token_count=20, total_token_count=120
        )
        content = types.Content(role="model", parts=parts)
        yield LlmResponse(content=content, usage_metadata=usage, partial=False)


def model(*turns):
    return Scripted(model="scripted", turns=list(turns))


AGENTS = {}


def support(*turns):
    kit = Tools()
    look_up, search, pay, wait = kit.all()

    def pay_or_say_why(order: str, euros: int) -> dict:
        """Pay money back."""
        try:
            return {"result": pay(order, euros)}
        except ValueError as error:  # one that a tool raises ends the run
            return {"error": str(error)}

    pay_or_say_why.__name__ = "pay"
    tools = [look_up, search, pay_or_say_why, wait]
    return Desk(LlmAgent(name="support", model=model(*turns), tools=tools), kit)


def with_expert(turns, experts):
    expert = LlmAgent(name="expert", model=model(*experts), description="Knows.")
    return Desk(LlmAgent(name="desk", model=model(*turns), tools=[AgentTool(expert)]))


async def ask(agent, *texts, leave=False):
    runner = InMemoryRunner(agent=agent.agent, app_name="demo")
    await runner.session_service.create_session(app_name="demo", user_id="u", session_id="s")
    for text in texts:
        said = types.Content(role="user", parts=[types.Part(text=text)])
        events = runner.run_async(user_id="u", session_id="s", new_message=said)
        async for _ in events:
            if leave:
                await events.aclose()
                return


async def stream(agent, text, *, leave=False):
    await ask(agent, text, leave=leave)
