"""Where each score of a domain stands among those before it: `GateHistory` of all runs at once."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kp_middleware.storage._gate_history import LAST_RUNS, WINDOW_S
from kp_middleware.storage._scored_runs import Numbers

WINDOW_MS: Final = WINDOW_S * 1000

_AT_ONCE: Final = 4000


class Standings(NamedTuple):
    """For each run, the last runs of its domain: how many, how many scored more, how many equal."""

    runs: Numbers
    more: Numbers
    equal: Numbers


def standings(scores: Numbers, started_ms: Numbers) -> Iterator[Standings]:
    """Of one domain, some thousand runs at a time, each beside the 500 before it."""
    import numpy as np

    before = np.lib.stride_tricks.sliding_window_view
    last_scores = before(np.concatenate([np.full(LAST_RUNS, np.nan), scores]), LAST_RUNS)
    never = np.full(LAST_RUNS, np.iinfo(np.int64).min)
    last_started_ms = before(np.concatenate([never, started_ms]), LAST_RUNS)
    for start in range(0, len(scores), _AT_ONCE):
        chunk = slice(start, min(start + _AT_ONCE, len(scores)))
        young = last_started_ms[chunk] >= started_ms[chunk, None] - WINDOW_MS
        yield Standings(
            young.sum(axis=1),
            (young & (last_scores[chunk] > scores[chunk, None])).sum(axis=1),
            (young & (last_scores[chunk] == scores[chunk, None])).sum(axis=1),
        )
