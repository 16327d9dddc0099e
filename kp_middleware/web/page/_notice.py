"""How the gate decided last: in one line, and louder where nothing came through."""

from kp_middleware.storage import LastDecisions
from kp_middleware.web.pictures import Markup, element


def notice(last: LastDecisions) -> Markup:
    """What `LastDecisions` says."""
    words = last.in_words()
    kind = "kp-notice kp-dry" if last.is_dry else "kp-notice"
    return element("p", element("bdi", f"{words[:1].upper()}{words[1:]}."), class_=kind)
