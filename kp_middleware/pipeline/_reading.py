"""Read the runs of a file for the program that records them."""

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from kp_middleware.errors import TraceNotFoundError
from kp_middleware.instants import instant
from kp_middleware.storage import Database, Filters, History, Listing, Run, RunSummary


def read_runs(path: Path, filters: Filters, *, limit: int) -> tuple[RunSummary, ...]:
    """Return the newest runs that fit; none where there is no file yet."""
    if not path.exists():
        return ()
    with closing(Database(path, read_only=True)) as file:
        listing = Listing(file)
        find = listing.newest if filters.text is None else listing.found
        return tuple(map(RunSummary.of, find(filters, limit=limit)))


def read_run(path: Path, trace_id: str) -> Run:
    """Return one run.

    Raises:
        TraceNotFoundError: If there is none with this id, or more than one.
    """
    if not path.exists():
        raise TraceNotFoundError(f"there is no trace yet in {path}: record a run")
    with closing(Database(path, read_only=True)) as file:
        history = History(file)
        return Run.of(history.trace(history.find(trace_id)))


def since_text(since: datetime | None) -> str | None:
    """Write an instant as the file has it; without a time zone it is local time."""
    return None if since is None else instant(since.astimezone(UTC).timestamp())
