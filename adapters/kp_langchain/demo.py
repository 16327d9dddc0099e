# ruff: noqa: ARG002 - LangChain's own signatures
"""The demo: a real agent with real tools, whose model follows a script, on seven tasks."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool

from kp_langchain._demo_tools import code_tools, finance_tools
from kp_langchain._handler import KPCallbackHandler
from kp_langchain._roots import Recording

# Any below: LangChain's own signatures.


class ScriptedModel(BaseChatModel):
    """A chat model without a model: it says one turn of its script after another.

    ``{convert}`` in a turn stands for what the tool ``convert`` returned last.
    """

    script: list[AIMessage]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> "ScriptedModel":
        """The same model: its script knows the tools."""
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        turn = self.script[sum(message.type == "ai" for message in messages)]
        results = {m.name: m.text for m in messages if isinstance(m, ToolMessage)}
        said = turn.model_copy(update={"content": turn.text.format_map(results)})
        return ChatResult(generations=[ChatGeneration(message=said)])


class Task(NamedTuple):
    """One task for the agent, and what its model will say."""

    domain: str
    objective: str
    script: list[AIMessage]


def run_tasks(kp: Recording) -> None:
    """Let the agent work on each task, and record it.

    Args:
        kp: A `KnowledgePulse`, which takes the traces.
    """
    for task in _TASKS:
        agent = create_agent(ScriptedModel(script=task.script), _TOOLS[task.domain]())
        handler = KPCallbackHandler(kp, domain=task.domain, confidence=how_sure)
        with suppress(PermissionError):  # one task fails, and its trace will say so
            agent.invoke(
                {"messages": [HumanMessage(task.objective)]},
                config=RunnableConfig(callbacks=[handler]),
            )


def how_sure(output: Any) -> float | None:
    """What the agent says of itself in its last message: "I am 90 % sure"; None where it does not.

    >>> how_sure({"messages": [AIMessage("It is 7. I am 90 % sure.")]})
    0.9
    """
    stated = re.search(r"I am (\d+) % sure", output["messages"][-1].text)
    return int(stated[1]) / 100 if stated else None


def _says(text: str, tool: str | None = None, **args: Any) -> AIMessage:
    calls = [] if tool is None else [{"name": tool, "args": args, "id": f"{tool} {args}"}]
    return AIMessage(text, tool_calls=calls)


_TOOLS: Final[dict[str, Callable[[], list[BaseTool]]]] = {
    "finance": finance_tools,
    "code": code_tools,
}

_EXCHANGE: Final = Task(
    "finance",
    "How many yen are 250 euros?",
    [
        _says("", "convert", amount=250, source="EUR", target="JPY"),
        _says("250 euros are {convert} yen."),
    ],
)

_LOAN: Final = Task(
    "finance",
    "We earn 6,200 dollars a month. Can we carry a mortgage of 300,000 euros at 4 % for 25 years?",
    [
        _says(
            "First the monthly payment of the mortgage, then its share of what they earn.",
            "monthly_payment",
            amount=300_000,
            yearly_rate=4,
            years=25,
        ),
        _says(
            "The rate has to be a fraction.",
            "monthly_payment",
            amount=300_000,
            yearly_rate=0.04,
            years=25,
        ),
        _says("", "convert", amount=1583.51, source="EUR", target="USD"),
        _says("", "share_of_income", payment=1726.03, income=6200),
        _says(
            "Yes. It costs {monthly_payment} euros a month, which are {convert} dollars: "
            "{share_of_income} of your income, and a third is the usual limit. I am 96 % sure."
        ),
    ],
)

_THANKS: Final = Task("finance", "Thank you!", [_says("You are welcome.")])

_REPAIR: Final = Task(
    "code",
    "Since Monday the shop refuses all new orders. Find out why, and repair it.",
    [
        _says("What changed on Monday, and who checks orders?", "search", word="ORDER_ID"),
        _says("", "run_test"),
        _says(
            "The pattern knows only six digits, but new numbers begin with the year.",
            "replace",
            name="shop/patterns.py",
            old="'[0-9]{6}'",
            new="'([0-9]{4}-)?[0-9]{6}'",
        ),
        _says("That is not how it is written there.", "read", name="shop/patterns.py"),
        _says(
            "",
            "replace",
            name="shop/patterns.py",
            old='"[0-9]{6}"',
            new='"([0-9]{4}-)?[0-9]{6}"',
        ),
        _says("", "run_test"),
        _says(
            "Repaired. Order numbers begin with the year since Monday, and the pattern took six "
            "digits only; now it takes both forms. The test says: {run_test}. I am 97 % sure."
        ),
    ],
)

_PUBLISH: Final = Task(
    "code",
    "Publish the repaired shop as version 1.4.1.",
    [_says("The repair is tested, so I publish it.", "publish", version="1.4.1")],
)

_TASKS: Final = (_EXCHANGE, _LOAN, _THANKS, _EXCHANGE, _REPAIR, _PUBLISH, _LOAN)
