"""What a page generates is up to date."""

import subprocess
import sys

import click
import pytest

from kp_middleware.inspection import main

pytest.importorskip("cogapp", reason="cogapp is not installed here")


def names(group, before=""):
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield f"{before}{name}"
        if isinstance(command, click.Group):
            yield from names(command, f"{before}{name} ")


@pytest.fixture
def page(repository):
    return repository / "docs" / "command-line.md"


def test_the_help_in_the_docs_is_the_help_of_the_commands(page):
    done = subprocess.run(
        [sys.executable, "-m", "cogapp", "--check", "--diff", str(page)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, f"run `python -m cogapp -r {page.name}`:\n{done.stdout}"


def test_every_command_is_in_the_docs(page):
    text = page.read_text("utf-8")

    assert [name for name in names(main) if f"Usage: kp-middleware {name} " not in text] == []
