"""What the pages for builders name is there: files, folders, targets of make, headings."""

import re

import pages
import pytest

FOR_BUILDERS = [
    pages.ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "changelog.d/README.md")
]
FROM = [pages.ROOT / folder for folder in ("", "kp_middleware", "kp_middleware/cli")]
PATHS = [
    pytest.param(path, id=f"{pages.name(page)}: {path}")
    for page in FOR_BUILDERS
    for path in re.findall(r"`([\w.*/-]+/[\w.*/-]*|[\w*-]+\.(?:py|sql|md|toml))`", page.read_text())
]
TARGETS = [
    pytest.param(target, id=f"{pages.name(page)}: make {target}")
    for page in FOR_BUILDERS
    for targets in re.findall(r"(?m)(?:`|^)make ([a-z -]+?)(?:`|$|  )", page.read_text())
    for target in targets.split()
]
LINKS = [
    pytest.param(page, link, id=f"{pages.name(page)}: {link}")
    for page in FOR_BUILDERS
    for link in re.findall(r"\]\((?!http)([^)#]+)", page.read_text("utf-8"))
]


@pytest.mark.parametrize("path", PATHS)
def test_a_file_that_a_page_names_is_there(path):
    pattern = re.sub("NAME", "*", path)

    assert [file for folder in FROM for file in folder.glob(pattern)]


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_that_a_page_names_is_one(target):
    assert re.search(rf"(?m)^{target}:", (pages.ROOT / "Makefile").read_text())


@pytest.mark.parametrize(("page", "link"), LINKS)
def test_a_link_leads_to_a_file(page, link):
    assert (page.parent / link).exists()


def test_the_pages_name_files_and_targets_at_all():
    assert len(PATHS) > 100
    assert len(TARGETS) > 10
