"""Two runs step by step, laid side by side where they did the same."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, Literal, NamedTuple, TypeAlias

from kp_middleware.storage import Row

Place: TypeAlias = Literal["same", "left", "right"]

_AROUND: Final = 2


class Pair(NamedTuple):
    """A step of both runs, or of one of them.

    Attributes:
        place: ``same`` in both, or only ``left`` or ``right``.
        left: Its ``step_id`` there; None where it is not.
        right: The same of the other run.
        type: What kind of step it is.
        tool: Which tool it used; None for none.
    """

    place: Place
    left: int | None
    right: int | None
    type: str
    tool: str | None


class Gap(NamedTuple):
    """So many pairs that are the same, left out."""

    pairs: int


def aligned(left: Sequence[Row], right: Sequence[Row]) -> list[Pair]:
    """The steps of both, by type and tool, in order."""
    matcher = SequenceMatcher(None, [*map(_key, left)], [*map(_key, right)], autojunk=False)
    pairs: list[Pair] = []
    for tag, a_from, a_to, b_from, b_to in matcher.get_opcodes():
        ours, theirs = left[a_from:a_to], right[b_from:b_to]
        if tag == "equal":
            pairs += [
                Pair("same", a["step_id"], b["step_id"], *_key(a))
                for a, b in zip(ours, theirs, strict=True)
            ]
        else:
            pairs += [Pair("left", a["step_id"], None, *_key(a)) for a in ours]
            pairs += [Pair("right", None, b["step_id"], *_key(b)) for b in theirs]
    return pairs


def without_sameness(pairs: Sequence[Pair]) -> Iterator[Pair | Gap]:
    """What differs, and two pairs around it; what is left out is counted."""
    near = [_is_near(pairs, at) for at in range(len(pairs))]
    left_out = 0
    for pair, shown in zip(pairs, near, strict=True):
        if not shown:
            left_out += 1
            continue
        if left_out:
            yield Gap(left_out)
            left_out = 0
        yield pair
    if left_out:
        yield Gap(left_out)


def _is_near(pairs: Sequence[Pair], at: int) -> bool:
    around = pairs[max(0, at - _AROUND) : at + _AROUND + 1]
    return any(pair.place != "same" for pair in around)


def _key(step: Row) -> tuple[str, str | None]:
    return step["type"], step.get("tool")
