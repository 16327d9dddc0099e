"""Counting what went and what stayed in sets of texts that others labeled."""

import re

from kp_middleware.privacy import Policy, redact_text

PLACEHOLDER = re.compile(r"\[REDACTED:\w+\]")
DOCUMENTED = re.compile(r"git@github\.com|\$\{\w+|\{\{|Bearer|sk-[a-z-]+|\W+")
"""What the reference removes and we keep: docs/decisions/redaction-beside-the-reference.md."""

NO_RULES = Policy()
NATIONAL = {"cue": "id beside a word", "bare": "id alone"}
"""How the set calls the surroundings of national ids."""


def spans(text, level, policy=NO_RULES):
    """Return the span and label of each removed part, except earlier placeholders."""
    redacted = redact_text(text, level=level, policy=policy)
    sizes = [f"(.{{{one.length}}})" for one in redacted.found]
    places = removed(text, redacted.text, sizes) or removed(text, redacted.text)
    told = PLACEHOLDER.findall(redacted.text)
    return [
        (range(*place), placeholder[len("[REDACTED:") : -1])
        for place, placeholder in zip(places, told, strict=True)
        if text[slice(*place)] != placeholder
    ]


def removed(text, cleaned, sizes=()):
    """Return the removed parts of a text; the reference writes one space after ``Bearer``."""
    first, *kept = (re.escape(part) for part in PLACEHOLDER.split(cleaned))
    gaps = sizes or ["(.*?)"] * len(kept)
    if len(gaps) != len(kept):
        return []
    pattern = first + "".join(gap + part for gap, part in zip(gaps, kept, strict=True))
    pattern = re.sub(r"Bearer\\ (?=\(|$)", r"Bearer\\s+", pattern)
    match = re.fullmatch(pattern, text, re.DOTALL)
    return [match.span(index + 1) for index in range(len(kept))] if match else []


def leaks(vector, level):
    """The parts that the reference takes out of a text and we do not, and do not say so."""
    text = vector["text"]
    gone = {place for span, _ in spans(text, level) for place in span}
    gone |= {place for match in PLACEHOLDER.finditer(text) for place in range(*match.span())}
    theirs = removed(text, vector["expected"][level]["cleaned"])
    left = ["".join(text[i] for i in range(*span) if i not in gone) for span in theirs]
    return [part for part in left if part and not DOCUMENTED.fullmatch(part)]


class Tally:
    """The counts of a labeled set that was cleaned at ``aggregated``.

    National ids are judged apart from all other identifiers: ``id beside a word``, where the text
    has a word for one, and ``id alone``.
    """

    def __init__(self, records, policy=NO_RULES):
        self.cores = {}
        self.right = []
        self.kept_but_hit = []
        for record in records:
            self._count(record, policy)

    def recall(self, category):
        return sum(self.cores[category]) / len(self.cores[category])

    @property
    def precision(self):
        return sum(self.right) / len(self.right)

    def _count(self, record, policy):
        text = record["text"]
        found = [span for span, _ in spans(text, "aggregated", policy)]
        gone = {place for span in found for place in span}
        labelled = {p for span in record["spans"] for p in range(span["start"], span["end"])}
        for span in record["spans"]:
            whole = all(p in gone or not text[p].isalnum() for p in range(*span["core"]))
            kind = NATIONAL.get(record["context"], span["category"])
            self.cores.setdefault(kind, []).append(whole)
        self.right += [not labelled.isdisjoint(span) for span in found]
        for keep in record["keep"]:
            if not gone.isdisjoint(range(keep["start"], keep["end"])):
                self.kept_but_hit.append((keep["label"], text))
