"""Redaction of recorded runs, before they are written."""

import logging
from collections import Counter
from collections.abc import Collection
from functools import partial
from typing import Final

from kp_middleware import privacy
from kp_middleware.errors import RedactionError
from kp_middleware.runs import RecordedRun
from kp_middleware.traces import Outcome, Step, Task

logger = logging.getLogger("kp_middleware")

_MOST_SECRETS: Final = 10_000
_UNREDACTED: Final = "(not kept: it could not be redacted)"
_TOO_LARGE: Final = "(not kept: it is too large to be redacted)"
_MOST_TOO_LARGE: Final = 16
_SPOKEN_FACTS: Final = ("error_type", "agent_name", "model", "thread_id", "tags")
_UNSPOKEN_METADATA: Final = {
    "task_domain": "general",
    "agent_id": None,
    "framework": None,
    "validated_by": None,
}
_UNSPOKEN_FACTS: Final[dict[str, object]] = {"tags": (), "facts": (), "part": None}


class OpenSecrets:
    """The secrets of threads in which a run waits, in memory alone; 10,000 in all at most."""

    def __init__(self) -> None:
        self._by_thread: dict[str, privacy.KnownSecrets] = {}

    def __bool__(self) -> bool:
        return bool(self._by_thread)

    def of(self, run: RecordedRun) -> privacy.KnownSecrets:
        """Return the secrets known from the earlier runs of a run's thread."""
        known = None if run.part is None else self._by_thread.get(run.part.thread)
        return privacy.KnownSecrets() if known is None else known

    def keep(self, run: RecordedRun, known: privacy.KnownSecrets) -> None:
        """Remember secrets for the next run in this run's thread."""
        if run.part is None or not known:
            return
        self._by_thread.pop(run.part.thread, None)
        self._by_thread[run.part.thread] = known
        while sum(map(len, self._by_thread.values())) > _MOST_SECRETS:
            del self._by_thread[next(iter(self._by_thread))]

    def forget_all_but(self, threads: Collection[str]) -> None:
        """Forget the secrets of all threads but these, given by their fingerprints."""
        self._by_thread = {
            thread: known for thread, known in self._by_thread.items() if thread in threads
        }


def without_secrets(
    run: RecordedRun, policy: privacy.Policy, known: privacy.KnownSecrets
) -> RecordedRun:
    """Return the redacted run, without its largest steps if it is too large to redact."""
    for _ in range(_MOST_TOO_LARGE):
        try:
            return _redacted(run, policy, known)
        except RedactionError as error:
            if error.reason != "too_large":
                raise
            logger.warning("a step of trace %s is not kept: %s", run.trace.id, error)
            run = _without_largest_step(run)
    return _redacted(run, policy, known)


def _redacted(run: RecordedRun, policy: privacy.Policy, known: privacy.KnownSecrets) -> RecordedRun:
    """Return the run redacted: a secret found in one place is removed everywhere."""
    redact = partial(
        privacy.redact_jsonable, _facts(run), level="private", policy=policy, known=known
    )
    beside, count = redact(), len(known)
    redacted = privacy.redact_trace(run.trace, level="private", policy=policy, known=known)
    return _cleaned(run, redact() if len(known) > count else beside, redacted)


def without_known(
    run: RecordedRun, *, policy: privacy.Policy, known: privacy.KnownSecrets
) -> RecordedRun:
    """Remove known secrets from a run that was written before all of them were known."""
    if not known:
        return run
    beside = privacy.spread_in_jsonable(_facts(run), level="private", policy=policy, known=known)
    redacted = privacy.spread_in_trace(run.trace, level="private", policy=policy, known=known)
    return _cleaned(run, beside, redacted)


def _facts(run: RecordedRun) -> dict[str, object]:
    facts = {name: getattr(run, name) for name in _SPOKEN_FACTS}
    return {**facts, "names": _names(run)}


def _names(run: RecordedRun) -> list[str]:
    """Return the distinct names of the steps' agents, parents and models."""
    named = ((step.agent, step.parent, step.model) for step in run.facts)
    return [*dict.fromkeys(name for names in named for name in names if name is not None)]


def _cleaned(
    run: RecordedRun, beside: privacy.RedactedValue, redacted: privacy.RedactedTrace
) -> RecordedRun:
    cleaned = {**beside.value, "trace": redacted.trace}
    names: dict[str | None, str | None] = {None: None}
    names.update(zip(_names(run), cleaned.pop("names"), strict=True))
    cleaned["facts"] = tuple(
        step._replace(agent=names[step.agent], parent=names[step.parent], model=names[step.model])
        for step in run.facts
    )
    counts = Counter(run.redactions) + Counter(beside.counts) + Counter(redacted.counts)
    return run.model_copy(update={**cleaned, "redactions": dict(counts)})


def _without_largest_step(run: RecordedRun) -> RecordedRun:
    steps = [*run.trace.steps]
    at = max(range(len(steps)), key=lambda at: len(steps[at].model_dump_json()))
    bare = {"content": None, "input": None, "output_summary": _TOO_LARGE}
    steps[at] = steps[at].model_copy(update=bare)
    return run.model_copy(update={"trace": run.trace.model_copy(update={"steps": tuple(steps)})})


def without_words(run: RecordedRun) -> RecordedRun:
    """Return the run without any text, for when redaction fails."""
    trace = run.trace
    bare = trace.model_copy(
        update={
            "task": Task(objective=_UNREDACTED),
            "steps": tuple(Step(step_id=step.step_id, type=step.type) for step in trace.steps),
            "outcome": Outcome(result_summary="", confidence=trace.outcome.confidence),
            "source_skill": None,
            "knowledge_graph_delta": None,
            "metadata": trace.metadata.model_copy(update=_UNSPOKEN_METADATA),
        }
    )
    return run.model_copy(update={**dict.fromkeys(_SPOKEN_FACTS), **_UNSPOKEN_FACTS, "trace": bare})
