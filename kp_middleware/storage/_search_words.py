"""What somebody looks for, where FTS5 alone would not find it: pure functions of what was typed."""

import re
from typing import Final

_UNDIVIDED: Final = (
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2190-\u2bff\u3040-\u30ff\u3400-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f\U0001f000-\U0001faff\U00020000-\U0003ffff]"
)
"""Scripts that are written without blanks, of which FTS5 makes one long word; and emoji, of which
it makes none."""

_GRAMMAR: Final = re.compile(r"[:(){}^+]|\b(OR|NOT|NEAR)\b")


def undivided_words(text: str) -> list[str]:
    """The words, to be looked for anywhere in a text; none where FTS5 can do it.

    >>> undivided_words('"天気 予報" Tokyo'), undivided_words("天 OR 気")
    (['天気', '予報', 'Tokyo'], [])
    """
    if not re.search(_UNDIVIDED, text) or _GRAMMAR.search(text):
        return []
    text = text.encode(errors="replace").decode()  # SQLite refuses lone surrogates
    words = (word.rstrip("*") for word in text.replace('"', " ").split() if word != "AND")
    return [word for word in words if word]


def in_both_spellings(text: str) -> str:
    """Words with ss or ß, for FTS5; other texts as they are.

    >>> in_both_spellings("Strasse 7"), in_both_spellings("a leak"), in_both_spellings("class*")
    ('("Strasse" OR "Straße") AND "7"', 'a leak', 'class*')
    """
    words = text.split()
    if not re.search("ss|ß", text) or _GRAMMAR.search(text) or not all(map(str.isalnum, words)):
        return text
    return " AND ".join(map(_both, (word for word in words if word != "AND")))


def _both(word: str) -> str:
    other = word.replace("ß", "ss") if "ß" in word else word.replace("ss", "ß")
    return f'"{word}"' if other == word else f'("{word}" OR "{other}")'
