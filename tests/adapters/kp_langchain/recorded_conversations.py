"""Conversations that were recorded: read, held again with a real agent, and as one document."""

import gzip
import json
from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool, ToolException
from scripted_agents import agent
from scripted_models import answer_of
from versions import InMemorySaver

from kp_middleware import ReasoningTrace
from kp_middleware.traces import CONTEXT

# Any below: JSON.

Recording: TypeAlias = dict[str, Any]
"""``task_id``, ``trial``, ``reward`` (1.0 where the task was done) and OpenAI's ``messages``."""

_ANY_ARGUMENTS = {"type": "object", "properties": {}}
_ASIDE = ("created_at", "framework", "task_domain", "quality_score")


def read_recordings(path: Path) -> list[Recording]:
    """One from each line."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def human_turns(recording: Recording) -> list[str]:
    """Return the user's messages, turn by turn."""
    return [message["content"] for message in recording["messages"] if message["role"] == "user"]


def answered_turns(recording: Recording) -> list[str]:
    """Those that somebody or something answered."""
    pairs = pairwise(recording["messages"])
    return [message["content"] for message, _answer in pairs if message["role"] == "user"]


def agent_of(recording: Recording) -> Any:
    """An agent that says what was said then, and whose tools give what they gave then.

    It remembers its threads. Where the recording ends without an answer, its answer is empty.
    """
    turns = [_turn(message) for message in recording["messages"] if message["role"] == "assistant"]
    return agent(*turns, answer_of(""), tools=_tools(recording), checkpointer=InMemorySaver())


def on_one_thread(handler: object, *, at_once: int | None = 1) -> dict[str, Any]:
    """A config for all turns, in which so many tools run at once; None means as many as called."""
    return {
        "callbacks": [handler],
        "configurable": {"thread_id": "conversation"},
        "max_concurrency": at_once,
        "recursion_limit": 100,
    }


def document_of(recording: Recording) -> dict[str, Any]:
    """The ReasoningTrace that the whole conversation should make, as JSON.

    Its id, time, framework and domain are anything; what comes after the first human turn is steps.
    """
    objective, *later = [step for message in recording["messages"] for step in _steps(message)]
    said = [step["content"] for step in later if step["type"] == "thought"]
    return {
        "@context": CONTEXT,
        "@type": "ReasoningTrace",
        "id": "kp:trace:conversation",
        "metadata": {
            "created_at": "2026-11-01T09:14:03.120Z",
            "task_domain": "general",
            "success": recording["reward"] == 1.0,
            "quality_score": 0,
            "visibility": "network",
            "privacy_level": "aggregated",
        },
        "task": {"objective": objective["content"]},
        "steps": [{"step_id": number, **step} for number, step in enumerate(later)],
        "outcome": {"result_summary": said[-1] if said else "", "confidence": 0.8},
    }


def comparable(document: dict[str, Any] | ReasoningTrace) -> dict[str, Any]:
    """The document without its id, times, latencies, framework, domain and score."""
    if isinstance(document, ReasoningTrace):
        document = document.model_dump(mode="json")
    metadata = {name: said for name, said in document["metadata"].items() if name not in _ASIDE}
    steps = [_without(step, "latency_ms") for step in document["steps"]]
    return {**_without(document, "id"), "metadata": metadata, "steps": steps}


def acts(document: dict[str, Any] | ReasoningTrace) -> list[dict[str, Any]]:
    """Return the agent's texts, calls and results in a document, without their numbers."""
    steps = [_without(step, "step_id") for step in comparable(document)["steps"]]
    return [step for step in steps if step["type"] != "observation" or "tool" in step]


def _without(document: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != name}


def _steps(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the steps of one message: none, a user's words, an agent's acts, or a tool's result."""
    text = message.get("content") or ""
    match message["role"]:
        case "user":
            yield {"type": "observation", "content": text}
        case "tool":
            kind = "error_recovery" if text.startswith("Error") else "observation"
            yield {"type": kind, "tool": {"name": message["name"]}, "output_summary": text}
        case "assistant":
            if text:
                yield {"type": "thought", "content": text}
            for call in _calls(message):
                yield {"type": "tool_call", "tool": {"name": call["name"]}, "input": call["args"]}


def _turn(message: dict[str, Any]) -> AIMessage:
    return AIMessage(message.get("content") or "", tool_calls=_calls(message))


def _calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": call["function"]["name"],
            "args": json.loads(call["function"]["arguments"]),
            "id": call["id"],
        }
        for call in message.get("tool_calls") or ()
    ]


class _Memory:
    """The results of one tool by its arguments; for equal ones, in the order of the recording."""

    def __init__(self) -> None:
        self._results: dict[str, deque[str]] = defaultdict(deque)

    def add(self, args: object, result: str) -> None:
        self._results[json.dumps(args, sort_keys=True)].append(result)

    def give(self, **args: object) -> str:
        """Give what was recorded."""
        result = self._results[json.dumps(args, sort_keys=True)].popleft()
        if result.startswith("Error"):
            raise ToolException(result)
        return result


def _tools(recording: Recording) -> list[StructuredTool]:
    return [
        StructuredTool.from_function(
            memory.give, name=name, args_schema=_ANY_ARGUMENTS, handle_tool_error=True
        )
        for name, memory in _memories(recording).items()
    ]


def _memories(recording: Recording) -> dict[str, _Memory]:
    """By tool: the first result with an id is that of the first call with it, and so on."""
    waiting: dict[str, deque[dict[str, Any]]] = defaultdict(deque)
    memories: dict[str, _Memory] = defaultdict(_Memory)
    for message in recording["messages"]:
        for call in _calls(message):
            waiting[call["id"]].append(call)
        if message["role"] == "tool":
            call = waiting[message["tool_call_id"]].popleft()
            memories[call["name"]].add(call["args"], message["content"])
    return memories
