"""The ways to run a LangChain runnable: each takes a runnable, its input and a config."""

import asyncio

from langchain_core.runnables import Runnable


def invoke(runnable: Runnable, given: object, config: dict) -> None:
    runnable.invoke(given, config)


def ainvoke(runnable: Runnable, given: object, config: dict) -> None:
    asyncio.run(runnable.ainvoke(given, config))


def stream(runnable: Runnable, given: object, config: dict) -> None:
    list(runnable.stream(given, config))


def astream(runnable: Runnable, given: object, config: dict) -> None:
    async def run() -> None:
        _ = [part async for part in runnable.astream(given, config)]

    asyncio.run(run())


def astream_events(runnable: Runnable, given: object, config: dict) -> None:
    async def run() -> None:
        _ = [event async for event in runnable.astream_events(given, config, version="v2")]

    asyncio.run(run())


def batch(runnable: Runnable, given: object, config: dict) -> None:
    runnable.batch([given], config)


def abatch(runnable: Runnable, given: object, config: dict) -> None:
    asyncio.run(runnable.abatch([given], config))


WAYS = (invoke, ainvoke, stream, astream, astream_events, batch, abatch)
