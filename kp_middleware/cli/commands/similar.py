"""The command that finds traces like one."""

import heapq
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import click

from kp_middleware.cli.input.limit import limit_option
from kp_middleware.cli.input.names import trace_id_argument
from kp_middleware.cli.output.progress import progress
from kp_middleware.cli.output.rows import Output, output_options
from kp_middleware.database import connect
from kp_middleware.storage import History, Neighbours, Row, TraceVector
from kp_middleware.views.wording import short_id

_COLUMNS: Final = ("id", "similarity", "domain", "score", "success", "objective")
_BATCH: Final = 1024  # vectors of 384 numbers: 1.5 MB


class Found(NamedTuple):
    """A trace and how like it is, from -1 to 1: ordered by that."""

    similarity: float
    trace_seq: int


@click.command()
@trace_id_argument()
@limit_option(10)
@output_options(columns=_COLUMNS)
@click.pass_obj
def similar(db: Path, *, trace_id: str, limit: int, output: Output) -> None:
    """List the traces that are most like one, by their embeddings.

    ID is the beginning of its id, @last or @best. Similarity is the cosine: 1 for the same words,
    about 0 for what has nothing in common.

    \b
    kp-middleware similar @last -n 5
    """
    with closing(connect(db, read_only=True)) as connection:
        history, neighbours = History(connection), Neighbours(connection)
        seq = history.find(trace_id)
        vector = neighbours.vector(seq)
        if vector is None:
            raise click.ClickException(_why_not(history.trace(seq)))
        others = progress(
            neighbours.others(vector), total=neighbours.count(), what="traces compared"
        )
        found = heapq.nlargest(limit, compared(vector, others))
        rows = neighbours.traces([one.trace_seq for one in found])
    output.print(_with_similarity(rows, found), _COLUMNS, for_people=_for_people)


def compared(
    vector: TraceVector, others: Iterable[TraceVector], *, batch_size: int = _BATCH
) -> Iterator[Found]:
    """Each of the others, batch after batch: one product of a matrix and the vector for each."""
    import numpy as np

    others = iter(others)
    wanted = np.frombuffer(vector.blob, "<f4")
    while batch := [*islice(others, batch_size)]:
        rows = np.frombuffer(b"".join(one.blob for one in batch), "<f4").reshape(len(batch), -1)
        similarities = np.clip(rows @ wanted, -1.0, 1.0).tolist()
        for one, similarity in zip(batch, similarities, strict=True):
            yield Found(similarity, one.trace_seq)


def _with_similarity(rows: list[Row], found: list[Found]) -> Iterator[Row]:
    for row, one in zip(rows, found, strict=True):
        yield {"similarity": round(one.similarity, 6), **row}


def _for_people(row: Row) -> Row:
    return row | {"id": short_id(row["id"]), "success": "yes" if row["success"] else "no"}


def _why_not(trace: Row) -> str:
    """Why a trace has no vector, and what to do."""
    told = f"trace {short_id(trace['id'])} has no embedding to compare"
    match trace["state"]:
        case "recorded":
            return f"{told}: it is not scored yet; the next program that records does it"
        case "scored":
            return f"{told}: it was scored without a model; kp-middleware doctor says what to do"
        case state:
            return f"{told}: it is {state}, and only what is scored has one"
