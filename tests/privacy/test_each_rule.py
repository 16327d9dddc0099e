"""Each rule finds its own text alone, and its check turns down what only looks like it."""

import base64
import random
import re
import string
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from kp_middleware.privacy import Policy, redact_text

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
    """A text for one rule and what is left of it, and one that its check turns down."""

    label: str
    text: str
    left: str
    twin: str = ""
    left_of_twin: str = ""


class Row(NamedTuple):
    """A rule's row in rules.toml."""

    label: str
    is_checked: bool
    region: str


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
    """Those of one_of_each.txt, in its order, and further texts for the rules."""
    found, others = [], []
    lines = Path(__file__).with_name("one_of_each.txt").read_text(encoding="utf-8").splitlines()
    for line in lines:
        if not line or line.startswith("#"):
            continue
        kind, form = line.split(maxsplit=1)
        if line.startswith("but not"):
            twin = made(line.removeprefix("but not").lstrip(), line)
            found[-1] = found[-1]._replace(twin=twin, left_of_twin=twin)
        elif kind == "leaves":
            last = found[-1]
            found[-1] = last._replace(**{"left_of_twin" if last.twin else "left": made(form, line)})
        else:
            label, text = found[-1].label if kind == "also" else kind, made(form, line)
            left = re.sub("«.*»", f"[REDACTED:{label}]", text, flags=re.DOTALL)
            sample = Sample(label, re.sub("[«»]", "", text), left)
            (others if kind == "also" else found).append(sample)
    return found, others


def rows():
    """The rules of each row of rules.toml: one, or for a number with a form up to three."""
    table = tomllib.loads(files("kp_middleware.privacy").joinpath("rules.toml").read_text("utf-8"))
    for row in (section | row for section in table["section"] for row in section["rules"]):
        label, is_checked = row["label"], "check" in row
        if "find" in row:
            yield Row(label, is_checked, "")
        if "form" in row:
            yield from (Row(label, True, ""), Row(label, is_checked, row["region"]))
        if "value" in row:
            yield Row(label, is_checked and "form" not in row, "")


ROWS, (SAMPLES, OTHERS) = [*rows()], samples()
PAIRS = list(zip(ROWS, SAMPLES, strict=False))


def left_of(text, row):
    """Return the redacted text, with the rule's region set."""
    policy = Policy(phone_regions=(row.region,) if row.region else ())
    return redact_text(text, level="aggregated", policy=policy).text


def test_there_is_a_text_for_each_rule_and_a_twin_for_each_check():
    samples = [(sample.label, sample.twin != "") for sample in SAMPLES]

    assert samples == [(row.label, row.is_checked) for row in ROWS]


def test_of_the_text_of_each_rule_goes_what_it_is_for():
    left = [(sample.text, left_of(sample.text, row)) for row, sample in PAIRS]

    assert left == [(sample.text, sample.left) for sample in SAMPLES]


def test_of_its_other_texts_goes_what_it_is_for():
    left = [(sample.text, redact_text(sample.text, level="private").text) for sample in OTHERS]

    assert left == [(sample.text, sample.left) for sample in OTHERS]


def test_what_only_looks_like_it_stays():
    left = [(sample.twin, left_of(sample.twin, row)) for row, sample in PAIRS]

    assert left == [(sample.twin, sample.left_of_twin) for sample in SAMPLES]
