"""Little tools that really work, for the demo's agent."""

import ast
import re
from collections.abc import Callable
from typing import Any, Final

from langchain_core.tools import BaseTool, StructuredTool, ToolException

_UNITS_PER_EURO: Final = {"EUR": 1.0, "USD": 1.09, "JPY": 164.2, "CHF": 0.94, "GBP": 0.86}
_ORDER_NUMBERS: Final = ("104233", "2026-000123")
_SHOP: Final = {
    "shop/patterns.py": 'ORDER_ID = r"[0-9]{6}"\nPOSTCODE = r"[0-9]{5}"\n',
    "shop/orders.py": "def is_order_id(text):\n    return re.fullmatch(ORDER_ID, text)\n",
    "README.md": "A small shop. Since Monday its order numbers begin with the year.\n",
}


def finance_tools() -> list[BaseTool]:
    """What an agent needs to talk about money."""
    return _tools(convert, monthly_payment, share_of_income)


def code_tools() -> list[BaseTool]:
    """What an agent needs to repair a small project: a fresh copy of it, which it may change."""
    project = Project()
    return _tools(project.search, project.read, project.replace, project.run_test, publish)


def convert(amount: float, source: str, target: str) -> float:
    """Convert an amount of money between currencies, given by their three-letter codes."""
    for code in (source, target):
        if code not in _UNITS_PER_EURO:
            raise ToolException(f"no rate for {code!r}, only for {', '.join(_UNITS_PER_EURO)}")
    return round(amount / _UNITS_PER_EURO[source] * _UNITS_PER_EURO[target], 2)


def monthly_payment(amount: float, yearly_rate: float, years: int) -> float:
    """What a loan costs a month; the rate is a fraction, such as 0.05."""
    if not 0 < yearly_rate < 1:
        raise ToolException(f"a yearly rate of {yearly_rate} is no fraction: 4 % is 0.04")
    rate = yearly_rate / 12
    return round(amount * rate / (1 - (1 + rate) ** (-12 * years)), 2)


def share_of_income(payment: float, income: float) -> str:
    """How much of a monthly income a payment takes."""
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
        pattern = self._constant("shop/patterns.py", "ORDER_ID")
        refused = [number for number in _ORDER_NUMBERS if not re.fullmatch(pattern, number)]
        if refused:
            return f"failed: {pattern} refuses {', '.join(refused)}"
        return f"passed: {pattern} takes {', '.join(_ORDER_NUMBERS)}"

    def _constant(self, name: str, constant: str) -> str:
        for node in ast.parse(self.read(name)).body:
            match node:
                case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == constant:
                    return str(ast.literal_eval(value))
        raise ToolException(f"{name} has no {constant}")


def _tools(*functions: Callable[..., Any]) -> list[BaseTool]:
    return [StructuredTool.from_function(f, handle_tool_error=True) for f in functions]
