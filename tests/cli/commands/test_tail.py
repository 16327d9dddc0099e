"""Traces as they come to their end, on the screen."""

import signal
import subprocess
import sys

import pytest
from sample_runs import put, run, step, with_value
from terminal import typed

from kp_middleware.database import connect
from kp_middleware.storage import History

COMMAND = [sys.executable, "-m", "kp_middleware"]


def keep(db, objective):
    put(db, run(objective, step("thought", content="hm")), with_value(0.5))


def test_the_last_ones_come_first_and_then_what_comes(db):
    [keep(db, name) for name in "abc"]
    with History.open(db) as history:
        tail = history.tail(first=2)

        told = [next(tail)]
        for names in (["one"], [], ["two"]):
            [keep(db, name) for name in names]
            told.append(next(tail))

    assert [[run.objective for run in runs] for runs in told] == [["b", "c"], ["one"], [], ["two"]]


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["-c", "objective", "--json"], '{"objective": "b"}\n'),
        (["-c", "objective", "--nl"], '{"objective": "b"}\n'),
        (["-c", "objective", "-c", "score", "--csv"], "objective,score\nb,0.5\n"),
        (["-c", "objective", "--no-headers"], "b\n"),
    ],
    ids=" ".join,
)
def test_without_following_it_ends_with_the_last_ones(db, type_command, words, printed):
    [keep(db, name) for name in "ab"]

    assert type_command("tail", "--no-follow", "-n", "1", *words).stdout == printed


def test_a_person_sees_a_line_for_each_one_below_the_other(db):
    keep(db, "How high is \x1b[2J Mont Blanc? " + "Say it in metres. " * 9)
    keep(db, "Thanks!")

    heading, *lines = typed("--db", str(db), "tail", "--no-follow").splitlines()

    assert heading.split() == ["id", "score", "outcome", "state", "objective"]
    at = heading.index("objective")
    assert [line[at : at + 7] for line in lines] == ["How hig", "Thanks!"]
    assert "?[2J Mont" in lines[0]
    assert lines[0].endswith("…")


def test_a_real_one_tells_each_at_once_and_ends_with_ctrl_c(db):
    keep(db, "first")
    process = subprocess.Popen(
        [*COMMAND, "--db", str(db), "tail", "--csv", "-c", "objective"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    lines = [process.stdout.readline(), process.stdout.readline()]
    keep(db, "second")
    lines.append(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    rest = process.communicate()

    assert lines == ["objective\n", "first\n", "second\n"]
    assert (rest, process.returncode) == (("", ""), 130)


@pytest.mark.parametrize("form", ["--json", "--table"])
def test_a_file_without_a_run_can_fail_where_nothing_is_waited_for(db, type_command, form):
    connect(db).close()

    assert type_command("tail", "--no-follow", form).exit_code == 0
    assert type_command("tail", "--no-follow", form, "--fail-empty").exit_code == 4
