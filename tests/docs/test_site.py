"""The site is built strictly, of the pages that a code host shows, and fetches nothing."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
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


def test_every_page_of_the_docs_is_a_page_of_the_site(site):
    expected = {page.with_suffix(".html").name for page in (pages.ROOT / "docs").rglob("*.md")}

    assert expected <= {file.name for file in site.rglob("*.html")}


def test_every_page_but_the_decisions_is_in_the_menu(site):
    menu = (site / "index.html").read_text("utf-8")
    expected = {page.with_suffix(".html").name for page in (pages.ROOT / "docs").glob("*.md")}

    assert {name for name in expected if f'href="./{name}"' not in menu} <= {"index.html"}


def test_no_page_fetches_anything_from_another_host(read):
    fetched = {address for page in read.values() for address in page.fetched}

    assert len(fetched) > 3
    assert [one for one in fetched if urlsplit(one).netloc] == []


def test_no_page_has_what_the_theme_s_script_would_fetch_more_for(read):
    classes = set().union(*(page.classes for page in read.values()))

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


LINKS = [
    pytest.param(page, link, id=f"{pages.name(page)}: {link}")
    for page in pages.PAGES
    for link in re.findall(r"\]\((?!http)([^)]+)\)", page.read_text("utf-8"))
]


@pytest.mark.parametrize(("page", "link"), LINKS)
def test_a_link_on_a_code_host_leads_to_a_file_and_a_heading(page, link):
    path, _, place = link.partition("#")
    target = page.parent / path if path else page

    assert target.exists()
    assert not place or place in {slug(one) for one in headings(target)}


def headings(page: Path) -> list[str]:
    return re.findall(r"(?m)^#+ (.+)$", page.read_text("utf-8"))


def slug(heading: str) -> str:
    """As a code host makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
