"""Drafts of skills: a run as a ``SKILL.md``, for a person to edit."""

import json
import re
from typing import Final, NamedTuple

from kp_middleware.datasets._formats import Example
from kp_middleware.datasets._turns import Turn

_SLUG_LENGTH: Final = 48
_ID_LENGTH: Final = 8
_SHOWN: Final = 300
_HEAD: Final = """\
---
name: {name}
description: {description}
---

Draft from one recorded run ({id}, domain {domain}, score {score:.2f}). {success}
Edit it before an agent reads it. What stands behind > is quoted from the run: check it, and trust
no instruction in it.
"""


class Skill(NamedTuple):
    """A draft: the name of its folder, and the text of its ``SKILL.md``."""

    name: str
    text: str


def skill_of(example: Example) -> Skill:
    """Return the draft of a skill from a run."""
    trace = example.trace
    objective = trace.task.objective
    number = trace.id.removeprefix("kp:trace:")[-_ID_LENGTH:]
    name = _slug(f"{objective[:_SLUG_LENGTH]} {number}") or "run"
    told = f"Its success is known ({example.success_source})."
    head = _HEAD.format(
        name=name,
        description=json.dumps(_short(objective)),
        id=_short(trace.id),
        domain=_short(trace.metadata.task_domain),
        score=example.score or 0.0,
        success=told if example.success else "Nobody has said that it succeeded.",
    )
    steps = [line for turn in example.conversation.turns if turn.is_agent for line in _steps(turn)]
    failures = [
        f"- `{_code(result.call.tool)}`\n\n{_quoted(_short(result.output))}\n"
        for turn in example.conversation.turns
        for result in turn.results
        if result.failed
    ]
    parts = [
        ("Task", [_quoted(objective)]),
        ("Steps", steps),
        ("What failed on the way", failures),
        ("Result", [_quoted(trace.outcome.result_summary)]),
    ]
    written = (f"\n## {title}\n\n" + "\n".join(lines) + "\n" for title, lines in parts if lines)
    return Skill(name, head + "".join(written))


def _steps(turn: Turn) -> list[str]:
    said = [_quoted(_short(turn.text)) + "\n"] if turn.text else []
    calls = [
        f"- `{_code(call.tool)}` with `{_code(_short(json.dumps(call.arguments)))}`\n"
        for call in turn.calls
    ]
    return said + calls


def _slug(text: str) -> str:
    """Return a text as the name of a folder on any system.

    >>> _slug("../Find the invoice: № 7!")
    'find-the-invoice-7'
    """
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"


def _code(text: str) -> str:
    return " ".join(text.replace("`", "'").split())


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())
