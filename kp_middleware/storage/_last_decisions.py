"""The gate's latest decisions, and advice if no run clears."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from kp_middleware.core.formula import DEFAULT_THRESHOLD
from kp_middleware.core.gates import DAY_S
from kp_middleware.database import Connection

_LAST: Final = 100
_TENTH: Final = 0.1
_OF_A_DOMAIN: Final = 10  # fewer have no best tenth
_DOMAINS: Final = 3
_SAID: Final = "said_that_none_cleared_at_s"
_MORE: Final = "kp-middleware calibrate shows what each setting would do"


class LastDecisions(NamedTuple):
    """The gate's decisions on the last scored runs of a file, at most 100."""

    runs: int = 0
    cleared: int = 0
    gate: str = ""  # of the last run; empty: none
    best: float = 0.0
    top_tenth: float = 0.0  # the score that the best tenth reach
    domains: Mapping[
        str, float
    ] = {}  # the same for those with 10 or more of the runs, the largest first
    withheld: Mapping[str, int] = {}
    gates: int = 1

    @property
    def is_dry(self) -> bool:
        """True if there are 100 runs, and none of them cleared."""
        return self.runs >= _LAST and not self.cleared

    def in_words(self) -> str:
        """Describe how many runs cleared; if none of 100 did, add their scores and a remedy."""
        if not self.runs:
            return "no run is scored yet"
        if not self.is_dry:
            last = "1 scored run" if self.runs == 1 else f"the last {self.runs} scored runs"
            return f"{self.cleared} of {last} {self._their_gate()}"
        return (
            f"none of the last {self.runs} scored runs {self._their_gate()}:"
            f" the best scored {self.best:.3f}, the best tenth {self.top_tenth:.3f} and"
            f" more{self._by_domain()}; {self._remedy()}; {_MORE}"
        )

    def _their_gate(self) -> str:
        if self.gates > 1:
            return f"cleared their gate; the last was {self.gate}"
        return f"cleared the gate ({self.gate})"

    def _by_domain(self) -> str:
        if len(self.domains) < 2:
            return ""
        told = [f"{name!r} {score:.3f}" for name, score in [*self.domains.items()][:_DOMAINS]]
        return f" ({', '.join(told)}{', …' if len(self.domains) > _DOMAINS else ''})"

    def _remedy(self) -> str:
        if limited := self.withheld.get("daily_limit"):
            return f"{limited} were good enough for it, and stayed for max_per_day: a higher one"
        if self.withheld.get("gate_failed") == self.runs:
            return "the gate fails each time: the log of your program says how"
        if self.withheld.get("warming_up", 0) > self.runs // 2:
            until = "until a domain has enough runs to tell its best: nothing to do"
            return f"{DEFAULT_THRESHOLD:g} holds {until}"
        if self.withheld.get("below_share") or self.withheld.get("tied_with_share"):
            return "the runs before these were better: a larger share lets more through"
        if self.withheld.get("below_threshold"):
            return (
                'KP_THRESHOLD="top 10%", or threshold="top 10%" in the program, lets the best tenth'
                " of each domain through"
            )
        return "that rule is your program's own"


def read_last_decisions(connection: Connection) -> LastDecisions:
    """Read the decisions on the last 100 scored runs, or as many as there are."""
    rows = connection.execute(
        "SELECT domain, score, gate, verdict FROM traces WHERE score IS NOT NULL"
        " ORDER BY seq DESC LIMIT ?",
        (_LAST,),
    ).fetchall()
    if not rows:
        return LastDecisions()
    verdicts = Counter(verdict for *_, verdict in rows if verdict)
    scores = [score for _, score, *_ in rows]
    return LastDecisions(
        runs=len(rows),
        cleared=verdicts.pop("forwarded", 0),
        gate=rows[0][2] or "",
        best=max(scores),
        top_tenth=_top_tenth(scores),
        domains=_by_domain([(domain, score) for domain, score, *_ in rows]),
        withheld=verdicts,
        gates=len({gate for _, _, gate, _ in rows if gate}),
    )


def claim_to_say(connection: Connection, *, now_s: float) -> bool:
    """Claim the daily warning that no run cleared; return False if it was claimed within a day."""
    changed = connection.execute(
        "INSERT INTO meta (key, value) VALUES (:key, :now) ON CONFLICT (key) DO UPDATE"
        " SET value = :now WHERE CAST(value AS REAL) NOT BETWEEN :now - :day AND :now RETURNING 1",
        {"key": _SAID, "now": str(now_s), "day": DAY_S},
    )
    return changed.fetchone() is not None


def _by_domain(runs: list[tuple[str, float]]) -> Mapping[str, float]:
    scores: dict[str, list[float]] = {}
    for domain, score in runs:
        scores.setdefault(domain, []).append(score)
    largest = sorted(scores.items(), key=lambda item: (-len(item[1]), item[0]))
    return {name: _top_tenth(of) for name, of in largest if len(of) >= _OF_A_DOMAIN}


def _top_tenth(scores: list[float]) -> float:
    return sorted(scores, reverse=True)[math.ceil(len(scores) * _TENTH) - 1]
