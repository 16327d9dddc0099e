"""One trace: why it scored as it did, what it did, what it is like, and what left."""

import json
from collections.abc import Sequence
from typing import Final

from kp_middleware.storage import Row
from kp_middleware.views.trace import (
    added_up,
    applied_threshold,
    arithmetic,
    delivery_status,
    feedback_in_words,
    gate_in_words,
    is_cleared,
    redaction_counts,
)
from kp_middleware.web.page._alike import Alike, alike_card
from kp_middleware.web.page._card import card, picture_card
from kp_middleware.web.page._links import Links
from kp_middleware.web.page._objective import titled
from kp_middleware.web.page._steps import Extent, long_text, steps_html
from kp_middleware.web.pictures import (
    Markup,
    Picture,
    Term,
    count,
    element,
    joined,
    took,
    waterfall,
)

FULL: Final = Extent(steps=200, characters=20_000, body=200_000, draws_map=True)
"""As much of a trace as a page of its own shows."""

_TITLE: Final = 300


def trace_html(
    trace: Row,
    alike: Alike,
    links: Links,
    *,
    body: str | None = None,
    domains: Sequence[str] = (),
    extent: Extent = FULL,
) -> Markup:
    """All that is known of one trace.

    Args:
        trace: As `History.trace` gives it.
        alike: The traces most like it.
        links: Where things lead.
        body: Exactly what was or would be sent; None if nothing would.
        domains: Those of the whole file: each keeps its colour.
        extent: How much is shown.
    """
    return element(
        "article",
        trace_head(trace),
        element(
            "div",
            element(
                "div",
                picture_card(_score_title(trace), score_picture(trace), note=_gate(trace)),
                _sent(trace, body, extent),
                alike_card(alike, links, domains, draws_map=extent.draws_map),
            ),
            card("Steps", steps_html(trace["steps"], extent), _result(trace, extent)),
            class_="kp-aside",
        ),
    )


def trace_head(trace: Row) -> Markup:
    """What was asked, and the facts about the run."""
    facts = [
        trace["domain"],
        f"{trace['started_at'][:16].replace('T', ' ')} UTC",
        took(trace["duration_ms"]) if trace["duration_ms"] is not None else None,
        "succeeded" if trace["success"] else "failed",
        _steps(trace["step_count"]),
        trace["framework"],
        trace["agent_name"],
        trace["model"],
    ]
    told = (element("span", element("bdi", str(fact))) for fact in facts if fact)
    learned = feedback_in_words(trace)
    objective = str(trace["objective"])
    more = long_text(objective, 20_000) if len(objective) > _TITLE else ""
    title = f"{objective[:_TITLE]} …" if more else titled(objective, _TITLE)
    return element(
        "header",
        element("h1", element("bdi", title)),
        element("p", *told, class_="kp-facts"),
        element("p", element("code", trace["id"]), class_="kp-facts"),
        *(element("p", f"Feedback at {told}", class_="kp-facts") for told in learned),
        more,
    )


def _steps(number: int) -> str:
    return f"{count(number)}\N{NO-BREAK SPACE}{'step' if number == 1 else 'steps'}"


def score_picture(trace: Row) -> Picture:
    """The waterfall of one trace."""
    terms = [
        Term(line.part, line.working, line.amount) for line in added_up(arithmetic(trace))[:-1]
    ]
    bar = applied_threshold(trace)
    return waterfall(
        terms,
        trace["score"],
        bar,
        is_cleared=bar is not None and is_cleared(trace),
        why_not=delivery_status(trace),
    )


def _score_title(trace: Row) -> str:
    return "Score" if trace["score"] is None else f"Score {trace['score']:.3f}"


def _gate(trace: Row) -> str:
    gate = gate_in_words(trace)
    return "" if gate is None else f"Its gate: {gate}."


def _sent(trace: Row, body: str | None, extent: Extent) -> Markup:
    where, redactions = delivery_status(trace), redaction_counts(trace)
    removed = (
        element("li", f"{kind} {count(number)}")
        for kind, number in sorted(redactions.items(), key=lambda item: (-item[1], item[0]))
    )
    return card(
        "What left this machine",
        element("h2", "Removed before") if redactions else "",
        element("ul", *removed, class_="kp-chips") if redactions else "",
        _body(body, extent) if body else "",
        lead=f"{where[:1].upper()}{where[1:]}.",
    )


def _body(body: str, extent: Extent) -> Markup:
    text = json.dumps(json.loads(body), ensure_ascii=False, indent=2)
    cut = len(text) - extent.body
    if cut > 0:
        text = f"{text[: extent.body]}\n… {count(cut)} more characters"
    size = count(len(body.encode()))
    return element(
        "details",
        element("summary", f"The exact body, {size} bytes, indented"),
        element("pre", element("bdi", text)),
        class_="kp-more",
    )


def _result(trace: Row, extent: Extent) -> Markup:
    if not trace["result_summary"]:
        return joined(())
    return joined((element("h2", "Result"), long_text(trace["result_summary"], extent.characters)))
