"""Secrets that people tell each other: after the word for one, with other words between them."""

import re

from kp_middleware.privacy._notation import S
from kp_middleware.privacy._rules import Rule, value_of
from kp_middleware.privacy._strength import is_strong

_WORD = (
    r"(?<![A-Za-z=])(?i:password|passwd|passphrase|pwd|passcode|token|secret|api key|passwort"
    r"|kennwort|mot de passe|contrase(?:ñ|n)a|senha|wachtwoord|has(?:ł|l)o|parola|пароль)"
)
_STARTS = (
    *("pass", "pwd", "token", "secret", "api key", "kennwort", "mot de", "contrase", "senha"),
    *("wachtwoord", "hasło", "haslo", "parola", "пароль"),
)
_FOR = r"(?i:for|of|to|für|fuer|de|del|della|des|der|do|da|dla|для|от|к|on|in|at)"
_IS = r"(?:[:=]|(?i:is|was|ist|lautet|est|es|è|é|to|jest))"
_END = r"(?<![.,:;!?)\"'`])"


def _is_told(match: re.Match[str]) -> bool:
    """Letters and digits or signs together, as in no word of a sentence."""
    value = value_of(match)
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and is_strong(value)


def _lists_one(match: re.Match[str]) -> bool:
    """One of them is told."""
    values = re.split(r"[\"']\s*,\s*[\"']", value_of(match))
    return any(any(map(str.isdigit, value)) and is_strong(value) for value in values)


def _told(pattern: str) -> Rule:
    return Rule("password", "secret", pattern, _STARTS, (), _is_told)


_VALUE = rf"(?P<value>[^\s=\"'`,;<>()]{{8,256}}){_END}"

TOLD_RULES: tuple[Rule, ...] = (
    _told(rf"{_WORD}\*{{0,2}}{S}{{1,3}}(?:(?:→|⇒|–|—|-){S}{{1,2}})?[\"'`(]?{_VALUE}"),
    _told(
        rf"{_WORD}{S}(?:\([a-z ]{{1,20}}\)|\[[a-z ]{{1,20}}\]|{_FOR}{S}[^\n]{{1,60}}?)"
        rf"{S}?{_IS}{S}{{1,3}}[\"'`(]?{_VALUE}"
    ),
    Rule(
        "password",
        "secret",
        r"(?<![A-Za-z])(?i:(?:[a-z]{1,12}_)?(?:passwords|tokens|secrets|(?:api_?)keys))"
        r"\s?[:=]\s?\[\s{0,4}[\"'](?P<value>[^\[\]\n]{8,4096})[\"']\s{0,4},?\s{0,4}\]",
        ("passwords", "tokens", "secrets", "apikeys", "api_keys"),
        (),
        _lists_one,
    ),
)
