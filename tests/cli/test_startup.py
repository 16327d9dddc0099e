"""Every command teaches itself, and starts with next to nothing loaded."""

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from loading import heavy_modules

from kp_middleware import locations
from kp_middleware.cli import main

DECISION = Path(__file__).parents[2] / "docs" / "decisions" / "start-up-of-commands.md"
NEEDS_MORE, NO_TARGET = (
    {*re.findall(r"(?m)^\| `([a-z ]+)` \|", part)}
    for part in DECISION.read_text("utf-8").split("\n## ")
)
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
def test_a_command_s_help_begins_with_a_sentence_and_has_an_example(names, command):
    text = inspect.cleandoc(command.help)
    _, _, examples = text.partition("\b\n")

    assert text.split("\n\n")[0].rstrip().endswith((".", "?"))
    assert "kp-middleware" in examples
    assert all(name in examples for name in names)


@pytest.mark.parametrize(("names", "command"), EVERY)
def test_every_option_says_what_it_does(names, command):
    silent = [option.opts for option in options(command) if not (option.help or "").endswith(".")]

    assert (names, silent) == (names, [])


@pytest.mark.parametrize(("names", "command"), EVERY)
def test_help_is_printed_without_a_file(names, command, type_command, db):
    result = type_command(*names, "--help")

    assert result.exit_code == 0
    assert command.get_short_help_str(30).removesuffix("...")[:20] in " ".join(
        result.stdout.split()
    )
    assert not db.exists()


@pytest.mark.parametrize(("names", "command"), WITH_JSON)
def test_a_command_that_reads_loads_nothing_heavy(names, command, agent, db, tmp_path):
    agent("one")
    agent("two")
    arguments = [one for one in command.params if isinstance(one, click.Argument) and one.required]
    words = [WORDS[one.name] for one in arguments]
    typed = ["--db", str(db), *names, "--json", *ALSO.get(" ".join(names), []), *words]

    heavy, printed = heavy_modules(*(word.format(folder=tmp_path) for word in typed))

    assert heavy == []
    assert [json.loads(line) for line in [printed] if line]


@pytest.mark.parametrize(
    "words", [["calibrate"], ["redact"], ["show", "@last", "--why", "--weights", "code"]]
)
def test_a_mistyped_setting_is_told_wherever_settings_matter(words, agent, type_command):
    agent("one")
    locations.settings_file().parent.mkdir(parents=True, exist_ok=True)
    locations.settings_file().write_text('redact_denny = ["Bluebird"]\n')

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


def test_nothing_to_try_again_loads_nothing_heavy(agent, db):
    agent("one")

    heavy, printed = heavy_modules("--db", str(db), "outbox", "retry", "--failed", "--json")

    assert (heavy, json.loads(printed)) == ([], {})


def test_what_may_load_more_are_commands_that_there_are():
    assert {one.id for one in EVERY} >= NEEDS_MORE


def test_those_without_a_target_are_the_same_in_benchmark_and_decision():
    benchmark = DECISION.parents[2] / "benchmarks" / "inspection.py"
    [patient] = re.findall(r"(?s)^PATIENT.*?{(.*?)}", benchmark.read_text("utf-8"), re.MULTILINE)

    assert {*re.findall(r'"(.+?)"', patient)} == NO_TARGET


def test_nothing_to_score_anew_loads_nothing_heavy(agent, db):
    agent("one")

    heavy, printed = heavy_modules("--db", str(db), "rescore", "-d", "nothing", "--json")

    assert (heavy, json.loads(printed)["scored"]) == ([], 0)


@pytest.mark.parametrize("name", ["KP_PROFILES", "kp_profiles"])
def test_weights_of_the_user_s_own_win_over_those_of_the_protocol(name, agent, db, monkeypatch):
    agent("one")
    weights = {"complexity": 1, "novelty": 0, "tool_diversity": 0, "outcome_confidence": 0}
    monkeypatch.setenv(name, json.dumps({"finance": weights}))

    _, printed = heavy_modules(
        "--db", str(db), "show", "@last", "--why", "--weights", "finance", "--json"
    )

    assert [one["weight"] for one in json.loads(printed)["signals"]] == [1, 0, 0, 0]
