"""The one place where any failure becomes a refusal, and where a document begins and ends."""

from collections.abc import Iterator
from contextlib import contextmanager

from kp_middleware.errors import RedactionError
from kp_middleware.privacy._time_limit import document


@contextmanager
def refusing() -> Iterator[None]:
    """Turn what goes wrong inside into a RedactionError that says nothing of the value."""
    try:
        with document():
            yield
    except RedactionError:
        raise
    except Exception:  # noqa: BLE001  # fail closed, whatever it is
        raise RedactionError("redactor_error") from None  # the cause may quote the value
