"""Changes that users notice have a fragment, and `make changelog` collects them."""

import re
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("towncrier", reason="towncrier is not installed here")

NAME = re.compile(r"(\+[a-z0-9-]+|\d+)\.(added|changed|removed|fixed)\.md|README\.md")


def test_every_fragment_says_what_kind_of_change_it_is(repository):
    names = [file.name for file in (repository / "changelog.d").iterdir()]

    assert [name for name in names if not NAME.fullmatch(name)] == []


def test_fragments_become_the_newest_section_and_go(tmp_path, repository):
    for name in ("CHANGELOG.md", "pyproject.toml"):
        shutil.copy(repository / name, tmp_path)
    fragment = tmp_path / "changelog.d" / "+vectors.added.md"
    fragment.parent.mkdir()
    fragment.write_text("Vectors are remembered.\n")
    build = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", "9.9.9"]

    subprocess.run(build, cwd=tmp_path, capture_output=True, check=True)

    before, _, after = (
        (tmp_path / "CHANGELOG.md").read_text().partition("- Vectors are remembered.")
    )
    assert re.fullmatch(r"# Changelog\s+<!-- .+ -->\s+## 9\.9\.9, [\d-]+\s+### Added\s+", before)
    assert "## 0.1.0" in after
    assert not fragment.exists()
