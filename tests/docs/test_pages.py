"""Generated parts of the pages are up to date."""

import ast

import click
import pages
import pytest
import schema_page
import score_pictures

import kp_langchain
import kp_middleware
import kp_openai_agents
import kp_otel
from kp_middleware.cli import main

Cog = pytest.importorskip("cogapp", reason="cogapp is not installed here").Cog


def names(group, before=""):
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield f"{before}{name}"
        if isinstance(command, click.Group):
            yield from names(command, f"{before}{name} ")


def text_of(page):
    return (pages.ROOT / "docs" / page).read_text("utf-8")


def test_what_pages_have_from_the_code_is_as_the_code_is(monkeypatch, capsys):
    monkeypatch.chdir(pages.ROOT)
    made = [f"docs/{page}.md" for page in ("command-line", "reference", "schema")]

    code = Cog().main(["cog", "--check", "--diff", "-I", "tests/docs", *made])

    assert code == 0, f"run `make docs`:\n{capsys.readouterr().out}"


def test_every_command_is_in_the_docs():
    text = text_of("command-line.md")

    assert [name for name in names(main) if f"Usage: kp-middleware {name} " not in text] == []


def test_every_public_name_is_in_the_reference():
    text = text_of("reference.md")
    packages = (kp_middleware, kp_langchain, kp_openai_agents, kp_otel)
    names = {name for package in packages for name in package.__all__} - {"Settings"}

    assert [name for name in sorted(names) if f"\n### {name}\n" not in text] == []


def test_what_the_worked_adapter_imports_is_in_the_reference():
    source = (pages.ROOT / "examples" / "adapter" / "kp_little_agents.py").read_text()
    imported = {
        alias.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kp_middleware")
        for alias in node.names
    }

    text = text_of("reference.md")

    assert "SpanTree" in imported
    assert [name for name in sorted(imported) if f"\n### {name}\n" not in text] == []


def test_the_schema_has_every_column_of_every_table(connection):
    query = (
        "SELECT tables.name, columns.name FROM pragma_table_list AS tables"
        " JOIN pragma_table_xinfo(tables.name) AS columns WHERE tables.type = 'table' AND strict"
    )

    described = [
        (name, column.name)
        for name, table in schema_page.described().items()
        for column in table.columns
    ]

    assert sorted(described) == sorted(connection.execute(query).fetchall())


@pytest.mark.parametrize("picture", score_pictures.PICTURES, ids=lambda picture: picture.__name__)
def test_a_picture_in_the_docs_is_what_the_scorer_says(picture):
    kept = text_of(f"pictures/{picture.__name__}.svg")

    assert kept == f"{picture()}\n", "run tests/docs/score_pictures.py"
