"""OpenAI's Agents SDK, by OpenInference's instrumentor."""

from agents import set_trace_processors
from live_openai_agents import ask, stream, support, with_expert
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

__all__ = ["ask", "connect", "stream", "support", "with_expert"]


def connect(provider, kp):
    set_trace_processors([])
    OpenAIAgentsInstrumentor().uninstrument()
    OpenAIAgentsInstrumentor().instrument(tracer_provider=provider, exclusive_processor=True)
