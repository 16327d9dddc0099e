"""Each rule finds its own text alone, and its check turns down what only looks like it."""

import base64
import random
import re
import string
from pathlib import Path
from typing import NamedTuple

import pytest

from kp_middleware.privacy import Policy
from kp_middleware.privacy._indexed_text import compiled
from kp_middleware.privacy._rules import matched_value
from kp_middleware.privacy._ruleset import RULES, index, ruleset
from kp_middleware.privacy._scanner import find

ALPHABETS = {
    "A": string.ascii_uppercase + string.digits,
    "C": string.ascii_uppercase,
    "a": string.ascii_lowercase + string.digits,
    "b": "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
    "d": string.digits,
    "h": "0123456789abcdef",
    "w": string.ascii_letters + string.digits,
    "z": "a",
}
WHOLE = {
    "uuid": "{h:8}-{h:4}-{h:4}-{h:4}-{h:12}",
    "basic": base64.b64encode(b"bob:quiet").decode(),
}


class Sample(NamedTuple):
    """A text for one rule, and one that its check turns down."""

    label: str
    text: str
    value: str
    twin: str = ""


def made(form, seed):
    """The text of a form; the same one for the same seed."""
    letters = random.Random(seed)
    for name, whole in WHOLE.items():
        form = form.replace(f"{{{name}}}", whole)
    for sign, meant in (("\\\\", "\\"), ("\\n", "\n"), ("\\t", "\t")):
        form = form.replace(sign, meant)
    return re.sub(
        r"\{(\w):(\d+)\}",
        lambda match: "".join(letters.choices(ALPHABETS[match[1]], k=int(match[2]))),
        form,
    )


def samples():
    """Those of one_of_each.txt, in its order."""
    found = []
    lines = Path(__file__).with_name("one_of_each.txt").read_text(encoding="utf-8").splitlines()
    for line in lines:
        if not line or line.startswith("#"):
            continue
        if line.startswith("but not"):
            found[-1] = found[-1]._replace(twin=made(line.removeprefix("but not").lstrip(), line))
            continue
        label, form = line.split(maxsplit=1)
        text = made(form, line)
        found.append(
            Sample(label, re.sub("[«»]", "", text), text[text.index("«") + 1 : text.index("»")])
        )
    return found


SAMPLES = samples()
CASES = [
    pytest.param(rule, sample, id=f"{number}-{rule.label}-{ascii(sample.text)[1:24]}")
    for number, (rule, sample) in enumerate(zip(RULES, SAMPLES, strict=False))
]
CHECKED = [case for case in CASES if case.values[1].twin]


def found_by(rule, text):
    """What one rule takes out of a text in which places are rare; the longest first."""
    page = index(text + "\n" + " ." * 400)
    parts = [
        page.text[slice(*matched_value(match))]
        for match in page.matches(rule)
        if rule.check is None or rule.check(match)
    ]
    return sorted(parts, key=len, reverse=True)


def test_there_is_a_text_for_each_rule_and_a_twin_for_each_check():
    told = [(sample.label, sample.twin != "") for sample in SAMPLES]

    assert told == [(rule.label, rule.check is not None) for rule in RULES]


@pytest.mark.parametrize(("rule", "sample"), CASES)
def test_each_rule_finds_its_own_text_alone(rule, sample):
    found = found_by(rule, sample.text)

    assert found[:1] == [sample.value]
    assert all(part in sample.value for part in found)


@pytest.mark.parametrize(("rule", "sample"), CASES)
def test_all_rules_together_take_out_what_each_finds(rule, sample):
    place = sample.text.index(sample.value)
    policy = Policy(phone_regions=(rule.region,) if rule.region else ())

    gone = find(sample.text, ruleset("aggregated", policy))

    assert {*range(place, place + len(sample.value))} <= {
        at for span in gone for at in range(span.start, span.end)
    }


@pytest.mark.parametrize(("rule", "sample"), CHECKED)
def test_each_check_turns_down_what_only_looks_like_it(rule, sample):
    assert compiled(rule.pattern).search(sample.twin)
    assert found_by(rule, sample.twin) == []
