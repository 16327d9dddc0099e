"""The ways to run a LangChain runnable: each takes a runnable, its input and a config."""

import asyncio
from typing import Any

from langchain_core.runnables import Runnable


def invoke(runnable: Runnable, given: object, config: dict) -> Any:
    return runnable.invoke(given, config)


def ainvoke(runnable: Runnable, given: object, config: dict) -> Any:
    return asyncio.run(runnable.ainvoke(given, config))


def stream(runnable: Runnable, given: object, config: dict) -> None:
    list(runnable.stream(given, config))


async def _read(parts: Any) -> None:
    _ = [part async for part in parts]


def astream(runnable: Runnable, given: object, config: dict) -> None:
    asyncio.run(_read(runnable.astream(given, config)))


def astream_events(runnable: Runnable, given: object, config: dict) -> None:
    asyncio.run(_read(runnable.astream_events(given, config, version="v2")))


def batch(runnable: Runnable, given: object, config: dict) -> None:
    runnable.batch([given], config)


def abatch(runnable: Runnable, given: object, config: dict) -> None:
    asyncio.run(runnable.abatch([given], config))


WAYS = (invoke, ainvoke, stream, astream, astream_events, batch, abatch)
