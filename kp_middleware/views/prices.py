"""The cost of runs, by the user's own prices: ``prices.toml`` in the config folder."""

import math
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kp_middleware import locations
from kp_middleware.storage import History, ModelTokens
from kp_middleware.views.wording import distance

__all__ = ["Prices", "Spending", "read_prices"]


class Price(NamedTuple):
    input: float
    output: float


class Spending(NamedTuple):
    """The costs of runs by ``seq``, day and model; models without a price are left out."""

    runs: Mapping[int, float]
    days: Mapping[str, float]
    models: Mapping[str, float]
    unpriced: tuple[str, ...]


class Prices(NamedTuple):
    """The prices of models; ``problem``: why an existing file gives none."""

    models: Mapping[str, Price] = MappingProxyType({})
    currency: str = "USD"
    problem: str = ""

    def cost(self, model: str | None, read: int | None, wrote: int | None) -> float | None:
        """Return the cost of tokens read and written; None if the model has no price."""
        price = self.models.get(model or "")
        if price is None or read is wrote is None:
            return None
        return ((read or 0) * price.input + (wrote or 0) * price.output) / 1_000_000

    def spending(self, used: Iterable[ModelTokens]) -> Spending:
        runs = defaultdict[int, float](float)
        days, models = defaultdict[str, float](float), defaultdict[str, float](float)
        unknown, unpriced = set[int](), set[str]()
        for tokens in used:
            cost = self.cost(tokens.model, tokens.input, tokens.output)
            if cost is None:
                unknown.add(tokens.seq)
                unpriced.add(tokens.model or "calls that name no model")
                continue
            runs[tokens.seq] += cost
            days[tokens.day] += cost
            models[str(tokens.model)] += cost
        known = {seq: cost for seq, cost in runs.items() if seq not in unknown}
        return Spending(known, days, models, tuple(sorted(unpriced)))

    def costs(self, history: History, seqs: Collection[int]) -> Mapping[int, float]:
        return self.spending(history.tokens(seqs)).runs if self.models else {}

    def as_json(self, cost: float | None) -> dict[str, Any]:
        """Return the cost of a run for JSON; empty if the user has set no prices."""
        return {"cost": cost, "currency": self.currency} if self.models else {}

    def in_words(self, cost: float | None) -> str:
        """Format an amount with its currency; empty for None."""
        if cost is None:
            return ""
        amount = f"{cost:,.2f}" if cost >= 1 or cost == 0 else distance(cost, least=4)
        return f"{amount}\N{NO-BREAK SPACE}{self.currency}"


def read_prices() -> Prices:
    """Read the user's prices; none without a readable file."""
    path = locations.prices_file()
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
        currency, models = given.get("currency", "USD"), given.get("models", {})
        if not isinstance(currency, str) or not 0 < len(currency) <= 8:
            raise ValueError('currency must be a short text, such as "USD"')
        if not isinstance(models, dict):
            raise ValueError("models must be a table")
        return Prices({name: _price(name, price) for name, price in models.items()}, currency)
    except (FileNotFoundError, NotADirectoryError):
        return Prices()
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or error
        return Prices(problem=f"no costs are shown, {path} cannot be read: {why}")


def _price(model: str, entry: object) -> Price:
    match entry:
        case {"input": int() | float() as low, "output": int() | float() as high}:
            if all(math.isfinite(amount) and amount >= 0 for amount in (low, high)):
                return Price(float(low), float(high))
    raise ValueError(f"{model} needs input and output, each the price of a million tokens")
