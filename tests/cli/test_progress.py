"""Progress bars on a terminal."""

import re
import time
from functools import partial

import click
import pytest
from terminal import on_a_terminal

from kp_middleware.cli import main
from kp_middleware.cli.console import progress


@click.command(params=[*main.params])
@click.argument("pause", type=float)
def command(pause):
    for _ in progress(range(3), total=3, label="runs exported"):
        time.sleep(pause)
    print("done")


def printed(*words):
    """All that was printed while something took its time."""
    return on_a_terminal(partial(command, words))[0]


def test_what_takes_longer_than_half_a_second_has_a_bar_that_goes_at_the_end():
    told = printed("0.3")

    assert re.search(r"2/3 runs exported, 3\.\d a second", told)
    assert "runs exported" not in told.rsplit("\x1b[2K", 1)[-1]
    assert "done" in told


@pytest.mark.parametrize("words", [["0.3", "--quiet"], ["0.3", "--no-progress"], ["0.01"]], ids=str)
def test_nothing_is_drawn_where_it_is_quick_or_that_was_asked_for(words):
    assert printed(*words) == "done\n"
