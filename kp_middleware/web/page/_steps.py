"""What a run did, one step after another."""

import json
from typing import Final, NamedTuple

from kp_middleware.storage import Row
from kp_middleware.web.pictures import Markup, count, element, joined, took

_NAMES: Final = {
    "thought": "Thought",
    "tool_call": "Tool call",
    "observation": "Observation",
    "error_recovery": "Error, recovered",
}
_SHORT: Final = 400


class Extent(NamedTuple):
    """How much of a trace is shown.

    Attributes:
        steps: How many of its steps, the first.
        characters: Of each text.
        body: How many characters of what was sent.
        draws_map: Whether its neighbours are shown on a map, too.
    """

    steps: int
    characters: int
    body: int
    draws_map: bool


def steps_html(steps: list[Row], extent: Extent) -> Markup:
    """The steps down a line, and how many more there are."""
    shown = steps[: extent.steps]
    left = len(steps) - len(shown)
    more = element("p", f"{count(left)} more steps are not shown here.", class_="kp-lead")
    items = (_step(step, extent.characters) for step in shown)
    return joined((element("ol", *items, class_="kp-steps"), more if left else ""))


def long_text(text: str, characters: int) -> Markup:
    """A text with its line breaks; what is long is folded, what is very long is cut."""
    if len(text) > characters:
        text = f"{text[:characters]} … ({count(len(text) - characters)} more characters)"
    if len(text) <= _SHORT:
        return element("div", element("bdi", text), class_="kp-said")
    start = " ".join(text[:_SHORT].split())[:160]
    return element(
        "details",
        element("summary", element("bdi", f"{start} …")),
        element("div", element("bdi", text), class_="kp-said"),
    )


def _step(step: Row, characters: int) -> Markup:
    time = took(step["latency_ms"]) if step.get("latency_ms") is not None else ""
    return element(
        "li",
        element(
            "header",
            element("b", _NAMES[step["type"]]),
            *(element("bdi", str(step[part])) for part in ("agent", "tool") if step.get(part)),
            element("span", time),
        ),
        long_text(step["content"], characters) if step.get("content") else "",
        _input(step["input"], characters) if step.get("input") else "",
        long_text(step["output_summary"], characters) if step.get("output_summary") else "",
        class_=f"kp-step kp-{step['type']}",
    )


def _input(value: object, characters: int) -> Markup:
    written = json.dumps(value, ensure_ascii=False, indent=2)
    one_line = json.dumps(value, ensure_ascii=False)
    text = one_line if len(one_line) <= 72 else written
    return element("pre", element("bdi", text[:characters]))
