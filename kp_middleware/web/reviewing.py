"""The page that asks whether runs did their tasks: the only one that writes."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from markupsafe import Markup

from kp_middleware.storage import Database, History, ReviewItem, SqliteStore
from kp_middleware.views.successes import p_in_words
from kp_middleware.web.marks import render

FORM_KEY: Final = "kp_form"
"""The key of a request's scope with what proves a form to come from our own page."""

_AHEAD: Final = 50
_WHY: Final = {
    "forwarded": "The gate lets it leave.",
    "uncertain": "How it ended is in doubt.",
}


@dataclass(frozen=True, slots=True)
class Review:
    """The page.

    Attributes:
        item: The run to judge; None if there is nothing to ask.
        why: Why it is asked about.
        left: How many runs are asked about at most, this one included.
        href: Where the run is.
        action: Where the answer goes; empty where the page may not write.
        token: Proves that the answer comes from this page.
        skipped: The ids that were skipped.
        skip: Where the next run is asked about.
        answered: What became of the run that was judged last; empty for none.
    """

    item: ReviewItem | None
    why: str
    left: int
    href: str
    action: str
    token: str
    skipped: str
    skip: str
    answered: str


def review_html(
    history: History,
    href_of: Callable[[str], str],
    *,
    action: str,
    token: str | None,
    skipped: Sequence[str],
    answered: str,
) -> Markup:
    """Render the first run to judge that was not skipped."""
    items = history.to_review(limit=_AHEAD)
    left = [item for item in items if item.trace_id not in skipped]
    item = left[0] if left else None
    why = "" if item is None else _WHY[item.why]
    if item is not None and item.p_success is not None:
        why += f" P(success) {p_in_words(item.p_success, item.p_reasons)}."
    page = Review(
        item,
        why,
        len(left),
        href_of(item.trace_id) if item else "",
        action if token else "",
        token or "",
        ",".join(skipped),
        f"{action}?skip={','.join([*skipped, item.trace_id])}" if item else "",
        answered,
    )
    return render("review.html", page=page)


def judge(db: Path, trace_id: str, *, success: bool) -> None:
    """Store the answer as feedback: the run is scored and decided anew.

    Raises:
        TraceNotFoundError: If there is no such run.
    """
    from kp_middleware.pipeline import Feedback, Reevaluation
    from kp_middleware.settings import Settings

    settings = Settings.as_far_as_usable(db=db)
    with closing(Database(db)) as file:
        told = Feedback(trace_id, success, None, time.time())
        Reevaluation.of(SqliteStore(file), settings).learn(told)
