"""Functions of each kind, to be captured: they think about a question, and answer with it."""

import asyncio

from kp_middleware.recording import current_trace

ERROR = ValueError("no")


def think_about(question):
    current_trace().thought(f"about {question}")
    if question == "fail":
        raise ERROR


def plain(question: str, *, times: int = 1) -> str:
    """Answer."""
    think_about(question)
    return question * times


async def coroutine(question: str, *, times: int = 1) -> str:
    """Answer."""
    await asyncio.sleep(0)
    think_about(question)
    return question * times


def generator(question: str, *, times: int = 1):
    """Answer."""
    think_about(question)
    for _ in range(times):
        yield question
    return "returned"


async def async_generator(question: str, *, times: int = 1):
    """Answer."""
    think_about(question)
    for _ in range(times):
        yield question
