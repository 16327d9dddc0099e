"""Programs write texts down, in colors, in URLs, in pages: what they add is no part of a value."""

import re

import made_up
import pytest

from kp_middleware.privacy import redact_text


def numbered(value):
    """Without the words that announce it."""
    return re.sub(r"\A[A-Za-z .]+:? (?=[A-Z]{0,6}\d)", "", value)


KINDS = {
    **{kind: (value, value) for kind, value in made_up.PREFIXED.items()},
    **{kind: (value, numbered(value)) for kind, value in made_up.SENSITIVE.items()},
    **{kind: (value, numbered(value)) for kind, value in made_up.CONTACT.items()},
    **{form: (form.format(value), value) for form, value in made_up.IN_PLACE},
}
"""What goes, and the part of it that must not stay."""

SURROUNDINGS = {
    "nothing": "{}",
    "a tab in a repr": r"k\t{}\tx",
    "a line break in a repr": r"keys:\n{}\nend",
    "windows": r"k\r\n{}\r\nx",
    "a repr in a repr": r"k\\n{}\\nx",
    "a hard space in a repr": r"k\xa0{}\xa0x",
    "an equals sign in JSON": r"k\u003d{}\u0026",
    "quotes in JSON": r"\u0022{}\u0022",
    "a colour": "k\x1b[32m{}\x1b[0mx",
    "a colour in a repr": r"k\x1b[32m{}\x1b[0mx",
    "a colour in JSON": r"k\u001b[1;32m{}\u001b[0mx",
    "a colour in octal": r"k\033[32m{}\033[0mx",
    "a colour that was shown": "k^[[32m{}^[[0mx",
    "an equals sign in a URL": "k%3D{}%26x",
    "a URL in a URL": "k%253D{}%2526x",
    "quotes in a URL": "%22{}%22",
    "a line break in a URL": "a%0A{}%0Ab",
    "a space in a URL": "a%20{}%20b",
    "quotes in a page": "k&quot;{}&quot;x",
    "a number in a page": "k&#34;{}&#x22;x",
    "a page in a page": "k&amp;quot;{}&amp;quot;x",
    "bytes": "b'{}'",
    "a script without spaces": "是{}是",
}


@pytest.mark.parametrize("form", SURROUNDINGS.values(), ids=SURROUNDINGS.keys())
def test_no_kind_of_value_survives_and_nothing_more_goes_the_next_time_in(form):
    cleaned = {kind: cleaned_once(form.replace("{}", text)) for kind, (text, _) in KINDS.items()}

    assert [kind for kind, text in cleaned.items() if made_up.remains(KINDS[kind][1], text)] == []
    assert [kind for kind, text in cleaned.items() if cleaned_once(text) != text] == []


def cleaned_once(text):
    return redact_text(text, level="aggregated").text
