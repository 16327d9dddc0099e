"""Files, folders, make targets and headings that the pages for contributors name exist."""

import re

import pages

FOR_BUILDERS = [
    pages.ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "changelog.d/README.md")
]
FROM = [pages.ROOT / folder for folder in ("", "kp_middleware", "kp_middleware/cli")]
PATHS = re.compile(r"`([\w.*/-]+/[\w.*/-]*|[\w*-]+\.(?:py|sql|md|toml))`")
TARGETS = re.compile(r"(?m)(?:`|^)make ([a-z -]+?)(?:`|$|  )")
LINKS = re.compile(r"\]\((?!http)([^)#]+)")


def found(pattern):
    """Return each name with the page that has it."""
    return [
        (page, name) for page in FOR_BUILDERS for name in pattern.findall(page.read_text("utf-8"))
    ]


def test_each_file_that_a_page_names_is_there():
    named = found(PATHS)

    assert len(named) > 100
    assert [
        (pages.name(page), path)
        for page, path in named
        if not any(any(folder.glob(path.replace("NAME", "*"))) for folder in FROM)
    ] == []


def test_each_target_that_a_page_names_is_one():
    known = set(re.findall(r"(?m)^([\w-]+):", (pages.ROOT / "Makefile").read_text()))
    named = [(page, target) for page, targets in found(TARGETS) for target in targets.split()]

    assert len(named) > 10
    assert [(pages.name(page), target) for page, target in named if target not in known] == []


def test_each_link_leads_to_a_file():
    missing = [(page, link) for page, link in found(LINKS) if not (page.parent / link).exists()]

    assert missing == []
