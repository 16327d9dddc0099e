"""Every command teaches itself, and starts with next to nothing loaded."""

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from kp_middleware.cli import main
from kp_middleware.locations import settings_file

DECISION = Path(__file__).parents[2] / "docs" / "decisions" / "start-up-of-commands.md"
NEEDS_MORE, NO_TARGET = (
    {*re.findall(r"(?m)^\| `([a-z ]+)` \|", part)}
    for part in DECISION.read_text("utf-8").split("\n## ")
)
COMPLETED = {"ID", "A", "B", "tool", "domain"}
"""Names and metavars of what a shell completes from the file."""
NEEDS_AN_OUTBOX = {"outbox cancel"}
WORDS = {
    "file": "{folder}/made",
    "left": "@last",
    "name": "threshold",
    "out": "{folder}/made",
    "query": "SELECT 1 AS one",
    "right": "@last",
    "task": "one",
    "text": "one",
    "trace_id": "@last",
    "value": "0.8",
}
ALSO = {"prune": ["--keep", "1"], "tail": ["-n", "1", "--no-follow"]}
WITHOUT_JSON = ("outbox show @last", "outbox show @last --diff")
WITH_NOTHING_TO_DO = ("outbox retry --failed", "rescore -d nothing")
EACH_IN_A_FORK = """
import json, os, sys
from kp_middleware.cli import main
heavy = {"numpy", "sqlite_utils", "httpx2", "langchain", "datasette"}
for words in json.loads(sys.argv[1]):
    if not os.fork():
        main(words, standalone_mode=False)
        print("\\nloaded", *heavy & {*sys.modules}, flush=True)
        os._exit(0)
    os.wait()
"""


def walked(group, names=()):
    """Every command below a group with the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*names, name), command
        if isinstance(command, click.Group):
            yield from walked(command, (*names, name))


def options(command):
    return [one for one in command.params if isinstance(one, click.Option)]


EVERY = [
    pytest.param(names, command, id=" ".join(names))
    for names, command in [((), main), *walked(main)]
]
WITH_JSON = [
    one
    for one in EVERY
    if one.id not in NEEDS_MORE | NEEDS_AN_OUTBOX
    and any("--json" in option.opts for option in options(one.values[1]))
]


@pytest.mark.parametrize(("names", "command"), EVERY)
def test_a_command_teaches_itself_without_a_file(names, command, type_command, db):
    text = inspect.cleandoc(command.help)
    _, _, examples = text.partition("\b\n")
    silent = [option.opts for option in options(command) if not (option.help or "").endswith(".")]
    completed = [one for one in command.params if {one.name, one.metavar} & COMPLETED]

    result = type_command(*names, "--help")

    assert text.split("\n\n")[0].rstrip().endswith((".", "?"))
    assert "kp-middleware" in examples
    assert all(name in examples for name in names)
    assert silent == []
    assert all(one._custom_shell_complete for one in completed)
    assert result.exit_code == 0
    assert command.get_short_help_str(30).removesuffix("...")[:20] in " ".join(
        result.stdout.split()
    )
    assert not db.exists()


def typed_in_full(names, command, folder):
    """The words of a command with all that it needs, which writes into this folder."""
    arguments = [one for one in command.params if isinstance(one, click.Argument) and one.required]
    words = [WORDS[one.name].format(folder=folder) for one in arguments]
    return [*names, *ALSO.get(" ".join(names), []), *words]


def test_commands_that_read_load_nothing_heavy(agent, connection, db, tmp_path_factory):
    agent("one")
    agent("two")
    connection.execute(
        "INSERT INTO outbox (trace_seq, state, idempotency_key, registry, redactor, body)"
        " VALUES (2, 'sent', 'k', 'https://registry.example', 'r', '{}')"
    )
    commands = [typed_in_full(*one.values, tmp_path_factory.mktemp("out")) for one in WITH_JSON]
    commands += [words.split() for words in WITH_NOTHING_TO_DO]
    typed = [["--db", str(db), *words, "--json"] for words in commands]
    typed += [["--db", str(db), *words.split()] for words in WITHOUT_JSON]

    done = subprocess.run(
        [sys.executable, "-c", EACH_IN_A_FORK, json.dumps(typed)],
        capture_output=True,
        text=True,
        check=True,
    )

    printed = re.findall(r"(?s)(.*?)\nloaded([^\n]*)\n", done.stdout)
    assert len(printed) == len(typed) > 20, done.stderr
    heavy = {" ".join(words): end for words, (_, end) in zip(typed, printed, strict=True) if end}
    assert heavy == {}
    for rows, _ in printed[: len(commands)]:
        assert json.loads(rows) is not None


@pytest.mark.parametrize(
    "words", [["calibrate"], ["redact"], ["show", "@last", "--why", "--weights", "code"]]
)
def test_a_mistyped_setting_is_reported_wherever_settings_matter(words, agent, type_command):
    agent("one")
    settings_file().parent.mkdir(parents=True, exist_ok=True)
    settings_file().write_text('redact_denny = ["Bluebird"]\n')

    result = type_command("-v", *words, "--json")

    assert "unknown setting 'redact_denny'" in result.stderr


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_no_command_starts_a_thread_for_each_processor(agent, db):
    agent("one")
    agent("two")
    code = (
        "import os, sys\n"
        "from kp_middleware.cli import main\n"
        "main(sys.argv[1:], standalone_mode=False)\n"
        "print('threads', len(os.listdir('/proc/self/task')), 'numpy' in sys.modules)\n"
    )
    typed = ["--db", str(db), "similar", "@last"]

    done = subprocess.run(
        [sys.executable, "-c", code, *typed], capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines()[-1] == "threads 1 True"


def test_what_may_load_more_are_commands_that_there_are():
    assert {one.id for one in EVERY} >= NEEDS_MORE


def test_those_without_a_target_are_the_same_in_benchmark_and_decision():
    benchmark = DECISION.parents[2] / "benchmarks" / "inspection.py"
    [patient] = re.findall(r"(?s)^PATIENT.*?{(.*?)}", benchmark.read_text("utf-8"), re.MULTILINE)

    assert {*re.findall(r'"(.+?)"', patient)} == NO_TARGET
