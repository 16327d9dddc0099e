"""Escapes, entities, terminal colours and invisible characters, decoded for the rules."""

import re
from bisect import bisect_right
from unicodedata import digit, normalize

PLACEHOLDER = re.compile(
    r"\[REDACTED:(?P<label>[a-z0-9_]{1,40})(?:[#]\d{1,9})?\]"
    r"|\[REDACTED(?::[a-z0-9_]{0,40}(?:[#]\d{0,9})?)?\Z"
)
"""A redaction placeholder, also one cut off at the end of a text."""

HIDDEN = "\ue000"
"""The character that replaces a placeholder: no word, number or white space to any rule."""

_UNSEEN = (
    "\u0000\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e007f\U000e0100-\U000e01ef"
)
_WIDE = "\uff01-\uff5e\u0660-\u0669\u06f0-\u06f9\u0966-\u096f"  # and digits of other scripts
_BEGIN = rf"(?=[\[\x1b\x9b%&\\^{_UNSEEN}{_WIDE}])"  # five times as fast as to try each of the kinds
_COLOUR = r"[\d;:?]{0,32}[A-Za-z]"  # what a terminal is told, after its escape character and [
_SLASHES = r"(?<!\\)\\++"  # once for each time that the text was written as a string

_SEEN = re.compile(
    rf"{_BEGIN}(?:(?P<hidden>{PLACEHOLDER.pattern})|[{_UNSEEN}]+|(?P<wide>[{_WIDE}])"
    rf"|(?:\x1b\[|\x9b){_COLOUR})"
)
_ESCAPE = rf"""
    (?P<gap>(?: (?: \x1b | \^\[ | {_SLASHES}(?:x1[bB] | u001[bB] | 0?33 | e) )\[
      | \x9b | %1[bB](?: \[ | %5[bB] ) ){_COLOUR})
    | %(?:25){{0,4}}(?P<hex_in_url>[0-9A-Fa-f]{{2}})
    | {_SLASHES}(?: x(?P<hex_byte>[0-9A-Fa-f]{{2}}) | u(?P<hex_unit>[0-9A-Fa-f]{{4}})
      | (?P<octal>[0-3][0-7]{{2}}) | (?P<letter>[abefnrtv0/]) )
    | &(?:amp;){{0,3}}(?: [#](?P<decimal>\d{{1,6}}) | [#][xX](?P<hex_entity>[0-9A-Fa-f]{{1,5}})
      | (?P<entity>quot|apos|lt|gt|amp|nbsp) );
"""
_ESCAPED = re.compile(f"{_BEGIN}(?:{_ESCAPE})", re.VERBOSE | re.ASCII)
ESCAPING = rf"[\\^\x1b\x9b{_UNSEEN}{_WIDE}]|%[0-9a-f]{{2}}|&|redacted|cut:"
"""What is in each text, in lower case, that has another reading than itself, or a cut."""

_MEANT = re.compile(
    f"{_BEGIN}(?: (?P<hidden>{PLACEHOLDER.pattern}) | [{_UNSEEN}]+ | (?P<wide>[{_WIDE}])"
    f"| {_ESCAPE} )",
    re.VERBOSE | re.ASCII,
)
_PLAIN = re.compile(
    rf"{_MEANT.pattern} | {_SLASHES}(?P<quote>[\"']) | (?P<slash>{_SLASHES})", re.VERBOSE | re.ASCII
)
_EIGHT = "\\" * 8
_DEEP = re.compile(r"(?<!\\)\\{8,}+[\"']")  # a string in a string in a string in a string
_LEVELS = re.compile(r"(?P<slash>\\{8})|\\{1,7}(?=[\"'])")
_MOST_PEELED = 4  # times three levels
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "/": "/"}
_LETTERS |= {"quot": '"', "apos": "'", "lt": "<", "gt": ">", "amp": "&"}


class Reading:
    """A text with each escape decoded to one character or none."""

    def __init__(self, text: str, signs: re.Pattern[str], of: "Reading | None" = None) -> None:
        self._of = of  # another reading, of which this is one
        self._places = [0]  # of each piece in what is read
        self._pieces = [(0, 1)]  # its place in the original, and the size of a character
        parts: list[str] = []
        meanings: dict[str, str] = {}  # a text has the same few escapes
        place = reached = 0
        for sign in signs.finditer(text):
            start, end = sign.span()
            written = sign[0]
            if written not in meanings:
                meanings[written] = _meaning(sign)
            character = meanings[written]
            parts += text[reached:start], character
            place += start - reached
            if character:
                self._places.append(place)
                self._pieces.append((start, end - start))
                place += 1
            self._places.append(place)
            self._pieces.append((end, 1))
            reached = end
        self.text = "".join([*parts, text[reached:]]) if parts else text

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Return the position of a non-empty part in the original text."""
        first, last = self._character(start)[0], self._character(end - 1)[1]
        return self._of.origin(first, last) if self._of else (first, last)

    def _character(self, place: int) -> tuple[int, int]:
        at = bisect_right(self._places, place) - 1
        origin, size = self._pieces[at]
        start = origin + place - self._places[at]
        return start, start + size


def readings(text: str) -> list[Reading]:
    r"""Return the text as displayed and, if it has escapes, also with them decoded.

    ``%3D`` hides where a value begins, and so do ``\n`` in a string that was written down, and
    the end of a colour: the last letter of each seems to belong to what follows. JSON that was
    written as a string more than three times is read again with three levels less.
    """
    found, peeled = _seen_and_meant(text), None
    for _ in range(_MOST_PEELED):
        if _EIGHT not in text or not _DEEP.search(text):
            break
        peeled = Reading(text, _LEVELS, peeled)
        text = peeled.text
        found += _seen_and_meant(text, peeled)
    return found


def _seen_and_meant(text: str, of: Reading | None = None) -> list[Reading]:
    kinds = [_SEEN, _MEANT] if _ESCAPED.search(text) else [_SEEN]
    return [Reading(text, signs, of) for signs in kinds]


def plain_readings(text: str) -> list[Reading]:
    """Return the text as displayed and, if it has escapes, also with all of them decoded."""
    kinds = [_SEEN, _PLAIN] if "\\" in text or _ESCAPED.search(text) else [_SEEN]
    return [Reading(text, signs) for signs in kinds]


def plain(text: str) -> str:
    """Return the text with all escapes decoded, as in the last of `plain_readings`."""
    return Reading(text, _PLAIN).text


def escapes_in(text: str) -> list[tuple[int, int]]:
    return [sign.span() for sign in _ESCAPED.finditer(text)]


def seen(text: str) -> str:
    """Return the text without invisible characters."""
    return Reading(text, _SEEN).text


def _meaning(sign: re.Match[str]) -> str:
    """Return the character that an escape stands for, or an empty string."""
    kind = sign.lastgroup
    match kind:
        case None:
            return ""
        case "hidden":
            return HIDDEN
        case "gap":
            return " "
        case "slash":
            return "\\"
        case "quote":
            return sign[kind]
        case "letter" | "entity":
            return _LETTERS.get(sign[kind], " ")
        case "wide":
            wide = sign[kind]
            return normalize("NFKC", wide) if wide > "\uff00" else str(digit(wide))
    code = int(sign[kind], {"octal": 8, "decimal": 10}.get(kind, 16))
    is_printed = code < 0xD800 or 0xE000 < code < 0x110000  # not surrogates nor private use
    return chr(code) if is_printed else " "
