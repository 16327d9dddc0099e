"""The menu of the site."""

import tomllib

import pages


def entries(menu):
    """The pages of a menu and of the menus in it, in their order."""
    for entry in menu:
        for inner in entry.values():
            yield from entries(inner) if isinstance(inner, list) else [inner]


def test_the_menu_names_every_page_of_the_docs_once():
    menu = tomllib.loads((pages.ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    docs = pages.ROOT / "docs"

    told = sorted(entries(menu))

    assert told == sorted(page.relative_to(docs).as_posix() for page in docs.rglob("*.md"))
