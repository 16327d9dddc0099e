"""What whoever waits at a terminal sees of how far something has come."""

import re
import sys

import pytest
from terminal import shown

SLOW = """
import sys, time
import click
from kp_middleware.cli.console import progress
from kp_middleware.cli.options import common

@click.command(params=common())
def command():
    for number in progress(range(3), total=3, label="runs exported"):
        time.sleep({pause})
    print("done")

command(sys.argv[1:])
"""


def walked(*words, pause=0.4):
    """All that a terminal was told while something took its time."""
    return shown([sys.executable, "-c", SLOW.format(pause=pause), *words])


def test_what_takes_longer_than_half_a_second_has_a_bar_that_goes_at_the_end():
    told = walked()

    assert "2/3 runs exported" in re.sub(r"\x1b\[[0-9;]*m", "", told)
    assert "runs exported" not in told.rsplit("\x1b[2K", 1)[-1]
    assert "done" in told


@pytest.mark.parametrize("words", [["--quiet"], ["--no-progress"]], ids=str)
def test_nothing_is_drawn_where_that_was_asked_for(words):
    assert walked(*words) == "done\r\n"


def test_what_is_quick_has_no_bar():
    assert walked(pause=0.01) == "done\r\n"
