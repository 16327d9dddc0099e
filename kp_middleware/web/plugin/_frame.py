"""Our frame around a page: the same in all versions of Datasette, and nothing in it can run."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import markupsafe
from datasette import Response

from kp_middleware.views.wording import one_line
from kp_middleware.web.page import style_html
from kp_middleware.web.pictures import Markup, element, joined

if TYPE_CHECKING:
    from datasette import Request
    from datasette.app import Datasette

_CONFINED: Final[Mapping[str, str]] = {
    "content-security-policy": "default-src 'none'; script-src 'none'; style-src 'unsafe-inline';"
    " img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

_REPLACED: Final = element(
    "p",
    "Another file has taken the place of the one that was opened. Our pages show the new one, the"
    " tables may show the old one: start this again.",
    class_="kp-notice",
    role="status",
)


class Page(NamedTuple):
    """What stands in the frame.

    Attributes:
        title: In the tab, before the name of the file.
        head: Where else to go.
        content: Everything else.
        status: Of the answer.
    """

    title: str
    head: Markup
    content: Markup
    status: int = 200


class Shown(NamedTuple):
    """Of which file it is.

    Attributes:
        database: How Datasette calls it.
        file: Its own name.
        was_replaced: Whether another file is in its place by now.
    """

    database: str
    file: str
    was_replaced: bool


async def framed(
    datasette: "Datasette", request: "Request", page: Page, shown: Shown | None = None
) -> Response:
    """The answer."""
    remark = _REPLACED if shown and shown.was_replaced else ""
    content = joined((page.head, remark, page.content))
    variables = {
        "title": page.title if shown is None else f"{page.title} · {shown.file}",
        "shown": shown,
        "style": markupsafe.Markup(style_html()),  # noqa: S704 - ours
        "content": markupsafe.Markup(content),  # noqa: S704 - escaped where it is put in
    }
    html = await datasette.render_template("kp_page.html", variables, request=request)
    return Response.html(html, status=page.status, headers=dict(_CONFINED))


def not_found(why: str) -> Page:
    """The page in place of one that is not there."""
    return _problem("Not found", why, status=404)


def failed(why: str) -> Page:
    """The page in place of one that cannot be shown."""
    return _problem("This cannot be shown", why, status=500)


def _problem(title: str, why: str, *, status: int) -> Page:
    words = one_line(f"{why[:1].upper()}{why[1:]}.")
    content = joined((element("h1", title), element("p", words, class_="kp-lead")))
    return Page(title, Markup(), content, status)
