"""Pages as HTML fragments: pure functions of what the file says.

Imports from `pictures`, `explanation` and `output`.
"""

from kp_middleware.web.page._alike import Alike
from kp_middleware.web.page._card import card, linked, picture_card, table
from kp_middleware.web.page._found import Extract, found_html
from kp_middleware.web.page._links import Links
from kp_middleware.web.page._objective import titled
from kp_middleware.web.page._overview import just_missed, overview_html
from kp_middleware.web.page._steps import Extent
from kp_middleware.web.page._style import style_html
from kp_middleware.web.page._trace import FULL, trace_html
from kp_middleware.web.page._what_if import what_if_html

__all__ = [
    "FULL",
    "Alike",
    "Extent",
    "Extract",
    "Links",
    "card",
    "found_html",
    "just_missed",
    "linked",
    "overview_html",
    "picture_card",
    "style_html",
    "table",
    "titled",
    "trace_html",
    "what_if_html",
]
