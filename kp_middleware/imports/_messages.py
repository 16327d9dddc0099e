"""Histories of chat messages, in every form in which they are published."""

from collections.abc import Iterable, Iterator

from kp_middleware.imports._run import Book, SourceRun, verdict
from kp_middleware.imports._values import digest
from kp_middleware.spans.fields import fields, listed, name, parsed, text, time_s
from kp_middleware.spans.messages import Said, said_in

_LOOKED_AT = 20


def read_messages(values: Iterable[object], book: Book) -> Iterator[SourceRun]:
    """Yield a run of each document: ``{"messages": […]}``, ``{"traj": […]}`` or a bare list."""
    for value in values:
        document = fields(value)
        histories = (value, *(document.get(key) for key in ("messages", "traj", "items")))
        history = next((found for one in histories if (found := listed(one))), [])
        if not has_messages(history):
            book.skip("unknown_type")
            continue
        run = book.begin(digest(value), name(document.get("session_id")))
        says_errors = "traj" in document or "trial" in document
        for message in history:
            if (said := said_in(message)) is not None:
                at_s = time_s(fields(message).get("timestamp"))
                run.take(_with_errors(said) if says_errors else said, at_s)
        run.success = verdict(document)
        yield run


def has_messages(history: object) -> bool:
    """Return whether a value is a list of messages or items."""
    return any(said_in(one) is not None for one in listed(history)[:_LOOKED_AT])


def _with_errors(said: Said) -> Said:
    """Return a message of tau-bench, where a failed tool's result begins with ``Error``."""
    results = (
        one._replace(failed=one.failed or text(one.output).startswith("Error"))
        for one in said.results
    )
    return said._replace(results=tuple(results))


def read_session(rows: Iterable[tuple[str, str, str, str]], book: Book) -> Iterator[SourceRun]:
    """Yield the runs of sessions that an Agents SDK ``SQLiteSession`` kept.

    A row has a session, a key, an item as JSON and a time; rows come by session, in order.
    """
    run: SourceRun | None = None
    session = None
    for of, key, item, at in rows:
        said = said_in(parsed(item))
        if said is None:
            book.skip("unknown_type")
            continue
        if of != session or said.role == "user":
            following = book.turn(run if of == session else None, f"{of}:{key}", of)
            if run is not None and following is not run:
                yield run
            run, session = following, of
        if run is not None:
            run.take(said, time_s(at))
    if run is not None:
        yield run
