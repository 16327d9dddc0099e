"""Our own documents, as ``kp-middleware export`` writes them: ids are kept."""

from collections.abc import Iterable, Iterator

from pydantic import ValidationError

from kp_middleware.imports._run import Book
from kp_middleware.spans import Fields, fields
from kp_middleware.traces import ReasoningTrace


def read_traces(values: Iterable[object], book: Book) -> Iterator[ReasoningTrace]:
    """Yield the documents."""
    for value in values:
        row = fields(value)
        document = _document(row)
        if document is None:
            book.skip("unknown_type")
            continue
        try:
            yield ReasoningTrace.model_validate(document)
        except (ValidationError, RecursionError):
            book.skip("invalid")


def _document(row: Fields) -> Fields | None:
    """Return the document of a line: the line itself, or a field of it."""
    for found in (row, fields(row.get("document")), fields(row.get("trace"))):
        if found.get("@type") == "ReasoningTrace":
            return found
    return None
