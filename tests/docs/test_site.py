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
LOADED_ON_DEMAND = ("mermaid", "glightbox", "pyodide", "arithmatex")
"""Classes for which the theme's script would fetch more from another host."""


class Reader(HTMLParser):
    """What a page of HTML fetches, where it leads, and which classes and places it has."""

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


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built in a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(pages.ROOT / "docs", folder / "docs")
    shutil.copy(pages.ROOT / "zensical.toml", folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "build" / "site"


@pytest.fixture(scope="module")
def read(site):
    """Each page of it, by its file."""

    def reader(file):
        found = Reader()
        found.feed(file.read_text("utf-8"))
        return found

    return {file: reader(file) for file in site.rglob("*.html") if file.name != "404.html"}


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


def test_every_page_of_the_docs_is_a_page_of_the_site(site):
    expected = {page.with_suffix(".html").name for page in (pages.ROOT / "docs").rglob("*.md")}

    assert expected <= {file.name for file in site.rglob("*.html")}


def test_no_page_fetches_anything_from_another_host_or_makes_the_theme_s_script_do_so(read):
    fetched = {address for page in read.values() for address in page.fetched}
    classes = set().union(*(page.classes for page in read.values()))

    assert len(fetched) > 3
    assert [one for one in fetched if urlsplit(one).netloc] == []
    assert classes.isdisjoint(LOADED_ON_DEMAND)


@pytest.mark.parametrize("kind", ["css", "svg"])
def test_no_style_of_pages_and_pictures_fetches_anything_from_another_host(site, kind):
    styled = {file.name: file.read_text("utf-8") for file in site.rglob(f"*.{kind}")}
    fetching = re.compile(r"(?:url\(|@import)\W*(?:https?:)?//")

    assert styled
    assert [name for name, text in styled.items() if fetching.search(text)] == []


def test_every_link_and_picture_of_the_site_is_there(read):
    missing = [
        (file.name, address)
        for file, page in read.items()
        for address in [*page.led_to, *page.fetched]
        if not urlsplit(address).netloc and not is_there(file, address, read)
    ]

    assert missing == []


def is_there(file, address, read):
    """Whether a link of a page leads to a file, and to a place in it if it names one."""
    parts = urlsplit(address)
    target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    if target.is_dir():
        target /= "index.html"
    place = unquote(parts.fragment)
    known = read[target].ids if target in read else set()
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
    """Whether a link of a page leads to a file, and to a heading of it if it names one."""
    path, _, place = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not place or place in slugs(target))


def slugs(page):
    """The places of a page's headings, as a code host makes them."""
    headings = re.findall(r"(?m)^#+ (.+)$", page.read_text("utf-8"))
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}
