"""Jinja2 for pages, charts and the report: every text is escaped where it is put in."""

import re
from functools import cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from kp_middleware.views.wording import minute, sentence, short_id

_HARMFUL: Final = re.compile(
    "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"  # what XML does not know
    "|[\u202a-\u202e\u2066-\u2069]"  # what would turn the words around it
)


def render(template: str, **values: object) -> Markup:
    """Render one of our templates, well-formed as XML, too."""
    return Markup(_environment().get_template(template).render(values))  # noqa: S704 - escaped


@cache
def frame() -> Template:
    """Return the frame around a page for Datasette, which renders asynchronously."""
    return _environment().overlay(enable_async=True).get_template("frame.html")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("kp_middleware", "web/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_harmless,
    )
    environment.filters.update(
        count="{:,}".format,
        minute=minute,
        px=lambda length: f"{round(length, 2):g}",
        sentence=sentence,
        short_id=short_id,
    )
    return environment


def _harmless(value: Any) -> Any:
    """Replace what could harm the page, also after escaping."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return _HARMFUL.sub("\N{REPLACEMENT CHARACTER}", value)
    return value
