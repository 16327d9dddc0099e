"""All scored runs of a file at once, as arrays: what a trial of gates looks at.

Read from indices, domain by domain: to read the wide rows takes twice as long.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kp_middleware.database import Connection
from kp_middleware.storage._overview import read_domains

if TYPE_CHECKING:
    from numpy.typing import NDArray

Numbers: TypeAlias = "NDArray[Any]"


class ScoredRuns(NamedTuple):
    """Each array has one element for each run, in the order of recording.

    Attributes:
        seqs: Their places in the file.
        scores: From 0 to 1.
        started_ms: In ms since the epoch.
        succeeded: Whether it did its task, as far as is known today.
        private: Whether it never leaves.
        domains: Where the runs of each domain are in these arrays, in order.
    """

    seqs: Numbers
    scores: Numbers
    started_ms: Numbers
    succeeded: Numbers
    private: Numbers
    domains: Mapping[str, Numbers]


def read_scored_runs(connection: Connection) -> ScoredRuns:
    """Loads numpy."""
    import numpy as np

    domains = {name: _of_domain(connection, name) for name in read_domains(connection)}
    runs = np.concatenate([*domains.values()]) if domains else _of_domain(connection, "")
    runs = runs[np.argsort(runs["seq"])]
    failed = connection.execute("SELECT seq FROM traces WHERE success = 0").fetchall()
    private = connection.execute(
        "SELECT seq FROM traces INDEXED BY traces_spread"
        " WHERE score IS NOT NULL AND visibility = 'private'"
    ).fetchall()
    return ScoredRuns(
        runs["seq"],
        runs["score"],
        runs["started_at"].astype(np.int64),
        ~np.isin(runs["seq"], np.array(failed, dtype=np.int64)),
        np.isin(runs["seq"], np.array(private, dtype=np.int64)),
        {name: runs["seq"].searchsorted(of["seq"]) for name, of in domains.items() if len(of)},
    )


def read_decided_ms(connection: Connection, runs: ScoredRuns) -> Numbers:
    """When each of the same runs was decided on, in ms since the epoch.

    Reads each wide row; of one that was removed since, when it started stands for it.
    """
    import numpy as np

    rows = connection.execute(
        "SELECT seq, substr(coalesce(decided_at, started_at), 1, 23)"
        " FROM traces NOT INDEXED WHERE score IS NOT NULL ORDER BY seq"
    ).fetchall()
    seqs, instants = zip(*rows, strict=True) if rows else ((), ())
    decided_ms = runs.started_ms.copy()
    known = np.isin(seqs, runs.seqs)
    places = runs.seqs.searchsorted(np.array(seqs, dtype=np.int64)[known])
    decided_ms[places] = milliseconds(instants)[known]
    return decided_ms


def milliseconds(instants: Sequence[str]) -> Numbers:
    """Since the epoch; the instants are without their Z."""
    import numpy as np

    return np.array(instants, dtype="datetime64[ms]").astype(np.int64)


def _of_domain(connection: Connection, domain: str) -> Numbers:
    """A row for each run, in order; instants are read without their Z."""
    import numpy as np

    rows = connection.execute(
        "SELECT seq, score, substr(started_at, 1, 23) FROM traces INDEXED BY traces_gate"
        " WHERE domain = ? AND score IS NOT NULL ORDER BY seq",
        (domain,),
    )
    return np.fromiter(rows, [("seq", "i8"), ("score", "f8"), ("started_at", "M8[ms]")])
