# ruff: noqa: ARG002 - LangChain's own signatures
"""The demo: a real agent with real tools, whose model follows a script, on seven tasks."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException

from kp_langchain._handler import KPCallbackHandler
from kp_middleware.recording import Recording

__all__ = ["Project", "ScriptedModel", "convert", "monthly_payment", "run_tasks"]

_UNITS_PER_EURO: Final = {"EUR": 1.0, "USD": 1.09, "JPY": 164.2, "CHF": 0.94, "GBP": 0.86}
_ORDER_NUMBERS: Final = ("104233", "2026-000123")
_SHOP: Final = {
    "shop/patterns.py": 'ORDER_ID = r"[0-9]{6}"\nPOSTCODE = r"[0-9]{5}"\n',
    "shop/orders.py": "def is_order_id(text):\n    return re.fullmatch(ORDER_ID, text)\n",
    "README.md": "A small shop. Since Monday its order numbers begin with the year.\n",
}


def convert(amount: float, source: str, target: str) -> float:
    """Convert an amount of money between currencies, given by their three-letter codes."""
    for code in (source, target):
        if code not in _UNITS_PER_EURO:
            raise ToolException(f"no rate for {code!r}, only for {', '.join(_UNITS_PER_EURO)}")
    return round(amount / _UNITS_PER_EURO[source] * _UNITS_PER_EURO[target], 2)


def monthly_payment(amount: float, yearly_rate: float, years: int) -> float:
    """Compute the monthly payment of a loan; the rate is a fraction, such as 0.05."""
    if not 0 < yearly_rate < 1:
        raise ToolException(f"a yearly rate of {yearly_rate} is no fraction: 4 % is 0.04")
    rate = yearly_rate / 12
    return round(amount * rate / (1 - (1 + rate) ** (-12 * years)), 2)


def share_of_income(payment: float, income: float) -> str:
    """Compute the share of a monthly income that a payment takes."""
    return f"{payment / income:.0%}"


def publish(version: str) -> str:
    """Publish the project; this needs a token, which the demo does not have."""
    raise PermissionError(f"no token to publish version {version}")


class Project:
    """A project in memory: its files by name."""

    def __init__(self) -> None:
        self._files = dict(_SHOP)

    def search(self, word: str) -> list[str]:
        """Find a word in the project's files."""
        return [
            f"{name}:{number}: {line}"
            for name, text in self._files.items()
            for number, line in enumerate(text.splitlines(), start=1)
            if word in line
        ]

    def read(self, name: str) -> str:
        """Read a file of the project."""
        if name not in self._files:
            raise ToolException(f"no file {name}, only {', '.join(self._files)}")
        return self._files[name]

    def replace(self, name: str, old: str, new: str) -> str:
        """Replace a text that occurs exactly once in a file."""
        text = self.read(name)
        if text.count(old) != 1:
            raise ToolException(f"{old!r} occurs {text.count(old)} times in {name}, not once")
        self._files[name] = text.replace(old, new)
        return f"{name} is changed"

    def run_test(self) -> str:
        """Check that the project's pattern for order numbers takes old and new ones."""
        pattern = self.read("shop/patterns.py").split('"')[1]
        refused = [number for number in _ORDER_NUMBERS if not re.fullmatch(pattern, number)]
        if refused:
            return f"failed: {pattern} refuses {', '.join(refused)}"
        return f"passed: {pattern} takes {', '.join(_ORDER_NUMBERS)}"


def tools_for(domain: str) -> list[BaseTool]:
    """Return the tools of an agent: for money, or to repair a fresh copy of a small project."""
    project = Project()
    functions: dict[str, tuple[Callable[..., Any], ...]] = {
        "finance": (convert, monthly_payment, share_of_income),
        "code": (project.search, project.read, project.replace, project.run_test, publish),
    }
    return [StructuredTool.from_function(f, handle_tool_error=True) for f in functions[domain]]


class ScriptedModel(BaseChatModel):
    """A fake chat model that returns one turn of its script after another.

    ``{convert}`` in a turn is the last result of the tool ``convert``.
    """

    script: list[AIMessage]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> "ScriptedModel":
        """Return the same model: its script knows the tools."""
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        turn = self.script[sum(message.type == "ai" for message in messages)]
        results = {m.name: m.text for m in messages if isinstance(m, ToolMessage)}
        filled = turn.model_copy(update={"content": turn.text.format_map(results)})
        return ChatResult(generations=[ChatGeneration(message=filled)])


class DemoTask(NamedTuple):
    """A task for the agent, with its model's script."""

    domain: str
    objective: str
    script: list[AIMessage]


def run_tasks(kp: Recording) -> None:
    """Run the agent on each task, and record it."""
    from langchain.agents import create_agent  # the tools need langchain-core alone

    for task in _TASKS:
        agent = create_agent(ScriptedModel(script=task.script), tools_for(task.domain))
        handler = KPCallbackHandler(kp, domain=task.domain, confidence=extract_confidence)
        with suppress(PermissionError):  # one task fails; its trace records that
            given: Any = {"messages": [HumanMessage(task.objective)]}
            agent.invoke(given, config=RunnableConfig(callbacks=[handler]))


def extract_confidence(output: Any) -> float | None:
    """Return the confidence in the last message, as in "I am 90 % sure", or None.

    >>> extract_confidence({"messages": [AIMessage("It is 7. I am 90 % sure.")]})
    0.9
    """
    stated = re.search(r"I am (\d+) % sure", output["messages"][-1].text)
    return int(stated[1]) / 100 if stated else None


def _reply(text: str, tool: str | None = None, **args: Any) -> AIMessage:
    calls = [] if tool is None else [{"name": tool, "args": args, "id": f"{tool} {args}"}]
    return AIMessage(text, tool_calls=calls)


_EXCHANGE: Final = DemoTask(
    "finance",
    "How many yen are 250 euros?",
    [
        _reply("", "convert", amount=250, source="EUR", target="JPY"),
        _reply("250 euros are {convert} yen."),
    ],
)

_LOAN: Final = DemoTask(
    "finance",
    "We earn 6,200 dollars a month. Can we carry a mortgage of 300,000 euros at 4 % for 25 years?",
    [
        _reply(
            "First the monthly payment of the mortgage, then its share of what they earn.",
            "monthly_payment",
            amount=300_000,
            yearly_rate=4,
            years=25,
        ),
        _reply(
            "The rate has to be a fraction.",
            "monthly_payment",
            amount=300_000,
            yearly_rate=0.04,
            years=25,
        ),
        _reply("", "convert", amount=1583.51, source="EUR", target="USD"),
        _reply("", "share_of_income", payment=1726.03, income=6200),
        _reply(
            "Yes. It costs {monthly_payment} euros a month, which are {convert} dollars: "
            "{share_of_income} of your income, and a third is the usual limit. I am 96 % sure."
        ),
    ],
)

_THANKS: Final = DemoTask("finance", "Thank you!", [_reply("You are welcome.")])

_REPAIR: Final = DemoTask(
    "code",
    "Since Monday the shop refuses all new orders. Find out why, and repair it.",
    [
        _reply("What changed on Monday, and who checks orders?", "search", word="ORDER_ID"),
        _reply("", "run_test"),
        _reply(
            "The pattern knows only six digits, but new numbers begin with the year.",
            "replace",
            name="shop/patterns.py",
            old="'[0-9]{6}'",
            new="'([0-9]{4}-)?[0-9]{6}'",
        ),
        _reply("That is not how it is written there.", "read", name="shop/patterns.py"),
        _reply(
            "", "replace", name="shop/patterns.py", old='"[0-9]{6}"', new='"([0-9]{4}-)?[0-9]{6}"'
        ),
        _reply("", "run_test"),
        _reply(
            "Repaired. Order numbers begin with the year since Monday, and the pattern took six "
            "digits only; now it takes both forms. The test says: {run_test}. I am 97 % sure."
        ),
    ],
)

_PUBLISH: Final = DemoTask(
    "code",
    "Publish the repaired shop as version 1.4.1.",
    [_reply("The repair is tested, so I publish it.", "publish", version="1.4.1")],
)

_TASKS: Final = (_EXCHANGE, _LOAN, _THANKS, _EXCHANGE, _REPAIR, _PUBLISH, _LOAN)
