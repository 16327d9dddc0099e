"""OpenAI's Agents SDK, by the processor of its own."""

from agents import set_trace_processors
from live_openai_agents import ask, stream, support, with_expert

from kp_openai_agents import KPTracingProcessor

__all__ = ["ask", "connect", "stream", "support", "with_expert"]


def connect(provider, kp):
    set_trace_processors([KPTracingProcessor(kp)])
