"""Real bash completes what has colons and blanks."""

import json
import os
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash here")


@pytest.fixture
def completed(db, tmp_path):
    """What bash puts in place of the last word: it has divided the line as bash does."""
    program = tmp_path / "kp-mw"
    program.write_text(
        f"#!{sys.executable}\nfrom kp_middleware.cli import main\nmain(prog_name='kp-mw')\n"
    )
    program.chmod(0o700)

    def ask(*words):
        typed = " ".join(f"'{word}'" for word in ("kp-mw", *words))
        script = f"""
            eval "$(kp-mw completion bash)"
            COMP_WORDS=({typed}) COMP_CWORD={len(words)}
            _kp_mw_completion kp-mw
            printf '%s\\n' "${{COMPREPLY[@]}}"
        """
        return subprocess.run(
            ["bash", "--norc", "-c", script],
            env={
                **os.environ,
                "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
                "KP_DB": str(db),
            },
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()

    return ask


@pytest.fixture
def trace_id(agent, type_command):
    agent("one")
    (row,) = json.loads(type_command("list", "--json").stdout)
    return row["id"].removeprefix("kp:trace:")


def test_a_state_of_two_words_is_completed_as_it_has_to_be_typed(completed):
    assert completed("list", "--state", "n") == [r"not\ queued"]


def test_within_quotes_nothing_is_escaped(completed):
    assert completed("list", "--state", '"not') == ["not queued"]


def test_a_name_that_looks_like_a_pattern_of_files_is_no_such_pattern(completed, kp):
    kp.capture(domain="my law *")(lambda: kp.tool(str.upper)("a"))()

    assert completed("list", "-d", "m") == [r"my\ law\ \*"]
    assert completed("list", "-d", r"my\ l") == [r"my\ law\ \*"]


def test_a_whole_id_is_completed_after_its_colons(completed, trace_id):
    divided = ["kp", ":", "trace", ":"]

    assert completed("show", *divided, trace_id[:3]) == [trace_id]
    assert completed("show", *divided) == [trace_id]
    assert completed("diff", *divided, "abc", *divided, trace_id[:3]) == [trace_id]


def test_a_domain_with_a_colon_is_completed_after_it(completed, kp):
    kp.capture(domain="law:eu")(lambda: kp.tool(str.upper)("a"))()

    assert completed("list", "-d", "l") == ["law:eu"]
    assert completed("list", "-d", "law", ":", "e") == ["eu"]


def test_an_id_is_completed_before_options_that_follow(completed, trace_id):
    assert completed("list", "--db", "kp.db", "-") != []
    assert completed("show", trace_id[:3]) == [trace_id[:8]]
