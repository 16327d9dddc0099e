"""The page that asks whether runs did their tasks: the only one that writes."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from markupsafe import Markup

from kp_middleware.storage import Database, History, SqliteStore
from kp_middleware.views.successes import p_in_words
from kp_middleware.web.marks import render

FORM_KEY: Final = "kp_form"
"""The key of a request's scope with what proves a form to come from our own page."""

_AHEAD: Final = 50
_WHY: Final = {
    "forwarded": "The gate lets it leave.",
    "uncertain": "How it ended is in doubt.",
}


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
    return render(
        "review.html",
        item=item,
        why=why,
        left=len(left),
        href=href_of(item.trace_id) if item else "",
        action=action if token else "",
        token=token,
        skipped=",".join(skipped),
        skip=f"{action}?skip={','.join([*skipped, item.trace_id])}" if item else "",
        answered=answered,
    )


def judge(db: Path, trace_id: str, *, success: bool) -> None:
    """Store the answer as feedback: the run is scored and decided anew."""
    from kp_middleware.pipeline import Feedback, Reevaluation
    from kp_middleware.settings import Settings

    settings = Settings.as_far_as_usable(db=db)
    with closing(Database(db)) as file:
        told = Feedback(trace_id, success, None, time.time())
        Reevaluation.of(SqliteStore(file), settings).learn(told)
