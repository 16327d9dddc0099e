"""The redaction rules of ``rules.toml``."""

import re
from collections import ChainMap
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from kp_middleware.privacy import _assignment_checks, _checks, _format_checks
from kp_middleware.privacy._names import ANY_NAME, NAME, NAME_STARTS, PART_OF_NAME
from kp_middleware.privacy._rules import TABLE, Check, Rule, in_any_case, spelled, words

_NEAR = 100, 40  # characters before and behind a number, among which its cue is looked for
_CHECKS = ChainMap(vars(_assignment_checks), vars(_format_checks), vars(_checks))
_FRAGMENT = re.compile(r"<([A-Z][A-Z_0-9]*)(?::([\d,]+))?>")
_WORDS: Final = {name: spelled(words(text)) for name, text in TABLE["words"].items()}
_FRAGMENTS: Final = {
    "NAME": NAME,
    "ANY_NAME": ANY_NAME,
    "PART_OF_NAME": PART_OF_NAME,
    **{name: in_any_case("|".join(listed)) for name, listed in _WORDS.items()},
}


def _expanded(pattern: str) -> str:
    return _FRAGMENT.sub(
        lambda of: _filled_in(of[1], *(of[2].split(",") if of[2] else ())), pattern
    )


def _filled_in(name: str, *arguments: str) -> str:
    """Return a fragment with its arguments in place of ``$1`` and ``$2``."""
    fragment = _FRAGMENTS[name]
    for number, argument in enumerate(arguments, start=1):
        fragment = fragment.replace(f"${number}", argument)
    return fragment


for _name, _text in TABLE["fragments"].items():
    _FRAGMENTS[_name] = _expanded(_text)


def _rules() -> Iterator[Rule]:
    for section in TABLE["section"]:
        for row in section["rules"]:
            yield from _of_row(section | row)


def _of_row(row: dict[str, Any]) -> Iterator[Rule]:
    """Yield the rules of a row: one, or for a number with a form up to three."""
    check = _check(row.get("check", ""))
    if "find" in row:
        yield _found(row, check)
    if "form" in row:
        yield from _formed(row, check)
    if "value" in row:
        yield _cued(row, None if "form" in row else check)


def _check(name: str) -> Check | None:
    if name.startswith("stdnum."):
        return _format_checks.valid(name)
    return _CHECKS[name] if name else None


def _found(row: dict[str, Any], check: Check | None) -> Rule:
    pattern: str = row["find"]
    if check and ("<ANY_NAME>" in pattern or "<PART_OF_NAME>" in pattern):
        check = _checks.named(check)
    is_named = "NAME>" in pattern
    return Rule(
        row["label"],
        row["group"],
        _expanded(pattern),
        _listed(row["starts"]) if "starts" in row else NAME_STARTS if is_named else (),
        _listed(row.get("needs", "")),
        check,
        reach=row.get("reach", 200),
        in_long=row.get("in_long", False),
    )


def _listed(text: str | list[str]) -> tuple[str, ...]:
    """Return a list of words: ``a|b``, or ``<THOSE>`` of the table, without what escapes them."""
    if not text or isinstance(text, list):
        return tuple(text)
    if fragment := _FRAGMENT.fullmatch(text):
        return tuple(word.lower().replace("\\", "") for word in _WORDS[fragment[1]])
    return words(text)


def _formed(row: dict[str, Any], check: Check | None) -> Iterator[Rule]:
    """Yield rules for a distinctive form: one near a cue, one anywhere in the user's regions."""
    pattern, starts = _filled_in("FORMED", _expanded(row["form"])), (row["starts"],)
    cues = spelled((*words(row["cues"]), *_WORDS["ANY_ID"]))
    needs = tuple(dict.fromkeys(max(cue.split("_"), key=len) for cue in cues))
    near = _near("|".join(cues).replace("_", "[ _-]?"), check)
    yield Rule(row["label"], row["group"], pattern, starts, needs, near)
    yield Rule(row["label"], row["group"], pattern, starts, check=check, region=row["region"])


def _near(cues: str, check: Check | None) -> Check:
    """Return a check that one of the cues is nearby, before or after the match."""
    before, behind = _NEAR

    def announced(match: re.Match[str]) -> bool:
        around = match.string[max(0, match.start() - before) : match.end() + behind]
        return _any_of(cues).search(around) is not None and (check is None or check(match))

    return announced


@cache
def _any_of(cues: str) -> re.Pattern[str]:
    return re.compile(rf"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:{cues})(?![a-z])")


def _cued(row: dict[str, Any], check: Check | None) -> Rule:
    cues = spelled(words("|".join(filter(None, (row["cues"], row.get("before"))))))
    announced = in_any_case("|".join(cues).replace("_", "[ _-]?"))
    pattern = _filled_in("CUED", announced, _expanded(row["value"]))
    starts = tuple(dict.fromkeys(cue.partition("_")[0] for cue in cues))
    return Rule(row["label"], row["group"], pattern, starts, check=check)


RULES: Final = tuple(_rules())
