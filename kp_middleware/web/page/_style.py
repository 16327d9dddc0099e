"""The style sheet, as text to be put into a page: nothing is fetched."""

from importlib.resources import files

from kp_middleware.web.pictures import Markup, element


def style_html(*, follows_dark: bool = False) -> Markup:
    """The style element.

    Args:
        follows_dark: Whether the page turns dark with the reader's system. Not inside a frame that
            stays light, such as Datasette's.
    """
    sheets = ("style.css", "dark.css") if follows_dark else ("style.css",)
    folder = files("kp_middleware").joinpath("web", "page")
    text = "\n".join(folder.joinpath(sheet).read_text("utf-8") for sheet in sheets)
    return element("style", Markup(text))
