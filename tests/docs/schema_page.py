"""The content of docs/schema.md: the schema with its comments.

cog runs it: ``make docs``.
"""

import re
import sqlite3
from contextlib import closing
from importlib.resources import files
from tempfile import TemporaryDirectory
from typing import NamedTuple

from kp_middleware.database import connect

_TABLE = re.compile(r"(?ms)^CREATE TABLE (\w+) \((?: *-- ([^\n]*)\n)?(.*?)\) STRICT")
_COMMENT = re.compile(r"(.*?)\s*-- (.*)$")
_CLAUSES = {"SELECT", "FROM", "LEFT", "WHERE", "GROUP", "ORDER", "UNION"}
_NO_COLUMN = {"PRIMARY", "UNIQUE", "CHECK", "FOREIGN"}


class Table(NamedTuple):
    """One table, as the schema has it."""

    comment: str
    columns: list["Column"]


class Column(NamedTuple):
    """One column, as the schema has it."""

    name: str
    definition: str
    comment: str


def tables() -> str:
    """A chapter for each table."""
    return "\n\n".join(_table(name, table) for name, table in described().items())


def views() -> str:
    """A chapter for each view: its columns, and its SQL."""
    with TemporaryDirectory() as folder, closing(connect(f"{folder}/kp.db")) as connection:
        found = connection.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'view' ORDER BY name"
        ).fetchall()
        return "\n\n".join(_view(connection, name, sql) for name, sql in found)


def described() -> dict[str, Table]:
    """Each table with its columns, in the order of the file."""
    script = files("kp_middleware.database").joinpath("schema.sql").read_text("utf-8")
    return {name: Table(comment, _columns(body)) for name, comment, body in _TABLE.findall(script)}


def _table(name: str, table: Table) -> str:
    head = f"### {name}\n\n{table.comment}".rstrip()
    rows = "\n".join(map(_row, table.columns))
    return f"{head}\n\n| column | definition | |\n|---|---|---|\n{rows}"


def _columns(body: str) -> list[Column]:
    found: list[Column] = []
    for line in body.splitlines():
        commented = _COMMENT.match(line)
        code, comment = commented.groups() if commented else (line, "")
        for definition in _divided(code):
            name, _, rest = definition.partition(" ")
            if name.upper() not in _NO_COLUMN:
                found.append(Column(name, " ".join(rest.split()), comment))
    return found


def _divided(code: str) -> list[str]:
    """At the commas that stand in no brackets."""
    parts, depth, last = [], 0, 0
    for place, letter in enumerate(code):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(code[last:place])
            last = place + 1
    return [part.strip() for part in [*parts, code[last:]] if part.strip()]


def _row(column: Column) -> str:
    comment = column.comment.replace("<", "&lt;")
    return f"| `{column.name}` | `{column.definition}` | {comment} |"


def _view(connection: sqlite3.Connection, name: str, sql: str) -> str:
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
    named = ", ".join(f"`{column}`" for column in columns)
    return f"### {name}\n\n{named}\n\n```sql\n{_broken(sql)}\n```"


def _broken(sql: str) -> str:
    """A view's SQL, on a new line before each of its own clauses."""
    lines, depth = [""], 0
    for word in re.split(r"(\s+|[()])", " ".join(sql.split())):
        depth += (word == "(") - (word == ")")
        if depth == 0 and word in _CLAUSES:
            lines.append("")
        lines[-1] += word
    return "\n".join(line.strip() for line in lines)
