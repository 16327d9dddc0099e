"""The site is built strictly, of the pages that a code host shows, and fetches nothing."""

import re
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pages
import pytest

pytest.importorskip("zensical", reason="zensical is not installed here")

FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
FETCHED_BY_STYLES = re.compile(r"(?:url\(|@import)\W*(?:https?:)?//")
LOADED_ON_DEMAND = ("mermaid", "glightbox", "pyodide", "arithmatex")
"""Classes for which the theme's script would fetch more from another host."""


class Reader(HTMLParser):
    """A parser of an HTML page: what it loads and links to, its classes and ids."""

    def __init__(self):
        super().__init__()
        self.fetched, self.led_to, self.ids, self.classes = [], [], set(), set()

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.ids.add(values.get("id"))
        self.classes.update((values.get("class") or "").split())
        if values.get(FETCHED.get(tag)):
            self.fetched.append(values[FETCHED[tag]])
        if tag == "a" and values.get("href"):
            self.led_to.append(values["href"])


def build(folder):
    """Builds the site in a folder of its own; gives its files, and what each page of it is."""
    shutil.copytree(pages.ROOT / "docs", folder / "docs")
    shutil.copy(pages.ROOT / "zensical.toml", folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    files = [*(folder / "build" / "site").rglob("*.*")]
    return files, {
        file: read(file) for file in files if file.suffix == ".html" and file.name != "404.html"
    }


def read(file):
    page = Reader()
    page.feed(file.read_text("utf-8"))
    return page


def test_the_menu_names_every_page_of_the_docs_once():
    menu = tomllib.loads((pages.ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    docs = pages.ROOT / "docs"

    assert sorted(entries(menu)) == sorted(
        page.relative_to(docs).as_posix() for page in docs.rglob("*.md")
    )


def entries(menu):
    """The pages of a menu and of the menus in it, in their order."""
    for entry in menu:
        for inner in entry.values():
            yield from entries(inner) if isinstance(inner, list) else [inner]


def test_the_site_has_every_page_and_all_it_leads_to_and_fetches_nothing_from_elsewhere(tmp_path):
    files, built = build(tmp_path)

    expected = {page.with_suffix(".html").name for page in (pages.ROOT / "docs").rglob("*.md")}
    fetched = {address for page in built.values() for address in page.fetched}
    missing = [
        (file.name, address)
        for file, page in built.items()
        for address in [*page.led_to, *page.fetched]
        if not urlsplit(address).netloc and not is_there(file, address, built)
    ]
    styled = {file: file.read_text("utf-8") for file in files if file.suffix in {".css", ".svg"}}

    assert expected <= {file.name for file in built}
    assert missing == []
    assert len(fetched) > 3
    assert [address for address in fetched if urlsplit(address).netloc] == []
    assert set().union(*(page.classes for page in built.values())).isdisjoint(LOADED_ON_DEMAND)
    assert {file.suffix for file in styled} == {".css", ".svg"}
    assert [file.name for file, text in styled.items() if FETCHED_BY_STYLES.search(text)] == []


def is_there(file, address, built):
    """Return whether a link leads to a file, and to an id in it if it names one."""
    parts = urlsplit(address)
    target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    if target.is_dir():
        target /= "index.html"
    place = unquote(parts.fragment)
    known = built[target].ids if target in built else set()
    return target.exists() and (not place or not known or place in known)


def test_each_link_on_a_code_host_leads_to_a_file_and_a_heading():
    links = [
        (page, link)
        for page in pages.PAGES
        for link in re.findall(r"\]\((?!http)([^)]+)\)", page.read_text("utf-8"))
    ]

    assert len(links) > 100
    assert [(pages.name(page), link) for page, link in links if not is_shown(page, link)] == []


def is_shown(page, link):
    """Return whether a link leads to a file, and to a heading in it if it names one."""
    path, _, place = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not place or place in slugs(target))


def slugs(page):
    """The places of a page's headings, as a code host makes them."""
    headings = re.findall(r"(?m)^#+ (.+)$", page.read_text("utf-8"))
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}
