"""Shell completion."""

import os
import shlex
import shutil
import subprocess
import sys
from contextlib import closing

import pytest
from click.testing import CliRunner

from kp_middleware.cli import main
from kp_middleware.database import connect
from kp_middleware.storage import domain_names, tool_names, trace_ids


@pytest.fixture
def complete():
    """Return the completions of these words, the last one unfinished: value and help."""

    def ask(*words):
        environment = {
            "_KP_MIDDLEWARE_COMPLETE": "fish_complete",
            "COMP_WORDS": shlex.join(["kp-middleware", *words[:-1]]),
            "COMP_CWORD": words[-1],
        }
        done = CliRunner().invoke(main, env=environment, prog_name="kp-middleware")
        assert (done.stderr, done.exit_code) == ("", 0)
        lines = [line.split(",", 1)[1] for line in done.stdout.splitlines() if line]
        return {value: text for value, _, text in (line.partition("\t") for line in lines)}

    return ask


@pytest.fixture
def short_ids(agent, as_json):
    """The ids of two traces as they are typed, the newest first."""
    agent("How high is Mont Blanc?")
    agent("two\x1b[2J\nlines")
    return [row["id"][9:17] for row in as_json("list")]


@pytest.mark.parametrize(
    "command",
    [
        ["show"],
        ["similar"],
        ["diff"],
        ["diff", "@last"],
        ["outbox", "show"],
        ["outbox", "retry"],
    ],
)
def test_ids_complete_with_what_was_asked(complete, db, short_ids, command):
    offered = complete("--db", str(db), *command, "")

    assert [*offered] == ["@last", "@best", *short_ids]
    assert offered[short_ids[0]] == "two?[2J lines"
    assert offered[short_ids[1]] == "How high is Mont Blanc?"


def test_an_id_goes_on_from_what_was_typed(complete, db, short_ids):
    first = short_ids[0]
    with closing(connect(db)) as connection:
        (whole,) = connection.execute(
            "SELECT id FROM traces WHERE id LIKE ?", (f"%{first}%",)
        ).fetchone()

    by_start = [
        [*complete("--db", str(db), "show", start)]
        for start in (first[:7], whole[9:22], whole[:14], "@l", "none")
    ]

    assert by_start == [[first], [whole[9:]], [whole], ["@last"], []]


@pytest.mark.usefixtures("short_ids")
def test_domains_and_tools_complete_from_the_file(complete, db, kp):
    kp.capture(domain="law")(lambda: kp.tool(str.lower)("A"))()

    assert [*complete("--db", str(db), "list", "-d", "l")] == ["law"]
    assert [*complete("--db", str(db), "list", "--tool", "")] == tool_names(db, "")
    assert domain_names(db, "") == ["code", "law"]
    assert domain_names(db, "l") == ["law"]
    assert tool_names(db, "sh") == ["shout"]
    assert len(tool_names(db, "")) == 2


@pytest.mark.parametrize("content", [None, "a letter " * 99, ""], ids=["none", "a letter", "empty"])
def test_a_file_that_cannot_be_read_completes_nothing_and_says_nothing(complete, db, content):
    if content is not None:
        db.write_text(content)

    assert [*complete("--db", str(db), "show", "")] == ["@last", "@best"]
    assert domain_names(db, "") == tool_names(db, "") == trace_ids(db, "") == []
    assert db.exists() == (content is not None)


def test_commands_settings_and_states_complete_with_what_they_do(complete):
    setting = complete("config", "set", "thresh")

    assert complete("bac") == {"backup": complete("")["backup"]}
    assert {"list", "show", "retry"} <= {*complete("outbox", "")}
    assert {"list", "set"} <= {*complete("config", "")}
    assert [*setting] == ["threshold"]
    assert setting["threshold"].startswith("The minimum score for sending, 0 to 1")
    assert [*complete("list", "--state", "in")] == ["incomplete"]
    assert [*complete("list", "--state", "not")] == ["not queued"]


def test_a_file_that_is_not_known_completes_nothing_and_says_nothing(complete, home):
    settings = home / ".config" / "kp-middleware" / "settings.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("db = ")

    assert [*complete("show", "")] == ["@last", "@best"]
    assert complete("list", "-d", "") == complete("list", "--tool", "") == {}


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash here")
def test_bash_itself_completes_an_id(db, short_ids, tmp_path):
    program = tmp_path / "kp-mw"
    program.write_text(
        f"#!{sys.executable}\nfrom kp_middleware.cli import main\nmain(prog_name='kp-mw')\n"
    )
    program.chmod(0o700)
    typed = f"""
        eval "$(_KP_MW_COMPLETE=bash_source kp-mw)"
        COMP_WORDS=(kp-mw show {short_ids[0][:7]}) COMP_CWORD=2
        _kp_mw_completion kp-mw
        echo "${{COMPREPLY[@]}}"
    """
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"

    printed = subprocess.run(
        ["bash", "--norc", "-c", typed],
        env={**os.environ, "PATH": path, "KP_DB": str(db)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert printed == f"{short_ids[0]}\n"
