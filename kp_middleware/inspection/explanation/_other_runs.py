"""The runs that differ from one in its kinds of step, its recoveries and its number of steps."""

from collections.abc import Iterator
from typing import Final

from kp_middleware.inspection.explanation._facts import Facts

RECOVERY: Final = "error_recovery"
"""The kind of step that counts twice."""

_KINDS: Final = ("observation", "thought", "tool_call")  # the others
_MANY: Final = 3  # recoveries for which a success is rewarded
_ENOUGH_STEPS: Final = 100  # with so many, complexity is 1; more only take from tool diversity
_NEAR: Final = 20  # steps fewer, of a run that has more than enough


def other_runs(run: Facts) -> Iterator[Facts]:
    """One for each score that other kinds of step, recoveries and numbers of steps can make.

    Which kinds they are does not matter, nor how many recoveries more than one or two: of those
    that score alike it is the one that is most like the run.
    """
    for kinds in dict.fromkeys(_kind_sets(run)):
        first = max(run.tools, len(kinds), 1)
        for steps in _step_counts(run, first):
            for recoveries in _recoveries(run, steps, len(kinds)):
                had = kinds | {RECOVERY} if recoveries else kinds
                if _has_room_for_tools(run, had):
                    yield run._replace(kinds=had, steps=steps, recoveries=recoveries)


def _step_counts(run: Facts, first: int) -> Iterator[int]:
    """Where there are more than enough, the fewest and those near to the run's tell of all."""
    enough = max(first, _ENOUGH_STEPS + _MANY) + 1
    yield from range(first, enough)
    yield from range(max(enough, run.steps - _NEAR), run.steps + _MANY + 1)


def _kind_sets(run: Facts) -> Iterator[frozenset[str]]:
    """Without recoveries: fewer and fewer than it had, those with a tool last; and more."""
    had = [kind for kind in _KINDS if kind in run.kinds]
    had.sort(key=lambda kind: (kind == "thought") == (run.tools > 0))
    missing = [kind for kind in _KINDS if kind not in run.kinds]
    if not run.tools:
        yield frozenset({"thought"})
        missing = [kind for kind in missing if kind == "thought"]
    for count in range(len(had) + 1):
        yield frozenset(had[:count])
    for count in range(1, len(missing) + 1):
        yield frozenset({*had, *missing[:count]})


def _recoveries(run: Facts, steps: int, kinds: int) -> Iterator[int]:
    """None, one or two, and many, each as near to those it had as there is room for."""
    if not kinds:
        yield steps
        return
    room = steps - kinds
    for least, most in ((0, 0), (1, min(2, room)), (_MANY, room)):
        if least <= most:
            yield min(max(run.recoveries, least), most)


def _has_room_for_tools(run: Facts, kinds: frozenset[str]) -> bool:
    """A thought uses none, unless all that it had were thoughts."""
    thought = frozenset({"thought"})
    return run.tools == 0 or kinds != thought or run.kinds == thought


def distance(run: Facts, other: Facts) -> tuple[int, int]:
    """How many steps are others; of as many, how many things there are to say of them."""
    changes = (
        len((run.kinds ^ other.kinds) - {RECOVERY}),
        abs(other.recoveries - run.recoveries),
        abs(plain_steps(run, other)),
    )
    return sum(changes), sum(map(bool, changes))


def plain_steps(run: Facts, other: Facts) -> int:
    """How many steps another run has more, beside its recoveries and the first of a new kind."""
    had, has = run.kinds - {RECOVERY}, other.kinds - {RECOVERY}
    return (other.steps - other.recoveries - len(has)) - (run.steps - run.recoveries - len(had))
