"""What whoever waits at a terminal sees of how far something has come."""

import io
import itertools
from contextlib import redirect_stderr

import click
import pytest

from kp_middleware.cli import main
from kp_middleware.cli.output.manners import Manners, set_manners
from kp_middleware.cli.output.progress import Progress, progress


class Terminal(io.StringIO):
    """Standard error, as a person sees it."""

    def isatty(self):
        return True

    @property
    def drawn(self):
        return [line for line in self.getvalue().split("\r\x1b[K") if line]


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return Terminal()


def ticking(step_s):
    """A clock that has gone on by so much whenever it is asked."""
    return itertools.count(0, step_s).__next__


def walk(stream, *, step_s=1.0, total=3, items=("a", "b", "c"), **more):
    with redirect_stderr(stream):
        return [*progress(items, total=total, what="traces", timer=ticking(step_s), **more)]


def test_on_a_terminal_count_total_and_rate_are_told(terminal):
    walk(terminal, step_s=1)

    assert terminal.drawn == [
        "████████░░░░░░░░░░░░░░░░  1 of 3 traces, 1.0 a second",
        "████████████████░░░░░░░░  2 of 3 traces, 1.0 a second",
        "████████████████████████  3 of 3 traces, 1.0 a second",
    ]


def test_the_items_come_through_as_they_are(terminal):
    assert walk(terminal) == ["a", "b", "c"]


def test_the_line_is_wiped_at_the_end(terminal):
    walk(terminal)

    assert terminal.getvalue().endswith("\r\x1b[K")


def test_nothing_is_drawn_in_the_first_half_second(terminal):
    walk(terminal, step_s=0.1)

    assert terminal.getvalue() == ""


def test_it_is_not_drawn_more_often_than_can_be_read(terminal):
    walk(terminal, step_s=0.04, items=range(25), total=25)

    assert 4 <= len(terminal.drawn) <= 6


def test_without_a_total_there_is_no_bar(terminal):
    walk(terminal, total=None)

    assert terminal.drawn[-1] == "3 traces, 1.0 a second"


def test_an_item_may_stand_for_several(terminal):
    walk(terminal, items=(500, 700), total=2000, size=int)

    assert terminal.drawn[-1].endswith("1,200 of 2,000 traces, 600 a second")


def test_more_than_the_total_does_not_burst_the_bar(terminal):
    walk(terminal, total=2)

    assert terminal.drawn[-1].startswith("█" * 24 + "  3 of 2")


def test_a_narrow_terminal_keeps_it_on_one_line(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")

    walk(terminal)

    assert {len(line) for line in terminal.drawn} == {29}


def test_what_is_no_loop_can_tell_as_well(terminal):
    with redirect_stderr(terminal), Progress("pages copied", timer=ticking(1)) as shown:
        shown.reach(30, 60)

    assert terminal.drawn == ["████████████░░░░░░░░░░░░  30 of 60 pages copied, 30 a second"]


def test_elsewhere_than_on_a_terminal_it_is_silent():
    stream = io.StringIO()

    walk(stream)

    assert stream.getvalue() == ""


def test_a_terminal_that_is_dumb_is_no_terminal(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")

    walk(terminal)

    assert terminal.getvalue() == ""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (Manners(verbose=True), "1 of 9 traces\n6 of 9 traces\n"),
        (Manners(verbose=True, quiet=True), ""),
        (Manners(verbose=True, progress=False), ""),
        (Manners(), ""),
    ],
    ids=["verbose", "verbose and quiet", "verbose and no progress", "nothing said"],
)
def test_in_a_pipe_verbose_tells_plain_lines_now_and_then(said, told):
    stream = io.StringIO()

    with click.Context(main) as context:
        set_manners(context, said)
        walk(stream, items=range(9), total=9)

    assert stream.getvalue() == told


@pytest.mark.parametrize("said", [Manners(quiet=True), Manners(progress=False)])
def test_nothing_is_drawn_where_that_was_asked_for(terminal, said):
    with click.Context(main) as context:
        set_manners(context, said)
        walk(terminal)

    assert terminal.getvalue() == ""


def test_an_error_s_message_finds_an_empty_line(terminal):
    with redirect_stderr(terminal), click.Context(main):
        items = progress(iter("abc"), total=3, what="traces", timer=ticking(1))
        next(items)
        next(items)

    assert terminal.getvalue().endswith("\r\x1b[K")  # though the loop never came to its end
