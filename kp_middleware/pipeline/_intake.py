"""Writing of finished runs, within the size limits and without secrets."""

import logging
import random
from collections import Counter
from functools import partial
from typing import Final
from uuid import UUID

from kp_middleware import privacy
from kp_middleware.errors import RedactionError
from kp_middleware.pipeline._conversations import Conversations, OpenSecrets
from kp_middleware.pipeline._queue import Owned, ThreadEnd
from kp_middleware.recording import (
    Limits,
    Recorder,
    assemble,
    bounded,
    shield,
)
from kp_middleware.runs import RecordedRun, fingerprint
from kp_middleware.settings import Settings
from kp_middleware.storage import Store
from kp_middleware.traces import Outcome, ReasoningTrace, Step, Task

logger = logging.getLogger("kp_middleware")

_UNREDACTED: Final = "(not kept: it could not be redacted)"
_TOO_LARGE: Final = "(not kept: it is too large to be redacted)"
_MOST_TOO_LARGE: Final = 16
_THERE: Final = (
    "trace %s is in the file already, and was not kept again: give each its own id;"
    " more of this kind are counted, not logged"
)
_SPOKEN_FACTS: Final = ("error_type", "agent_name", "model", "thread_id", "tags")
_UNSPOKEN_METADATA: Final = {
    "task_domain": "general",
    "agent_id": None,
    "framework": None,
    "validated_by": None,
}
_UNSPOKEN_FACTS: Final[dict[str, object]] = {"tags": (), "facts": (), "part": None}
_VISIBILITIES: Final = ("private", "org", "network")  # the strictest first
_LEVELS: Final = ("aggregated", "federated", "private")  # that which removes most first


class Intake:
    """Writes finished runs to the file.

    Args:
        store: Of the runs.
        settings: Say what is kept of a run, and what is filled in.
        policy: What is taken out.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        policy: privacy.Policy,
    ) -> None:
        self._store = store
        self._settings = settings
        self._limits = Limits.of(settings)
        self._policy = policy
        self._threads = Conversations(store, settings)
        self._secrets = OpenSecrets()
        self._said: set[str] = set()

    def keep(self, run: Recorder | ReasoningTrace | Owned | ThreadEnd) -> list[int]:
        """Write a run to the file without its secrets, unless it has no step.

        Returns:
            The places of what has changed: what of it is over waits to be scored.

        Raises:
            DatabaseError, sqlite3.OperationalError: If it could not be written: try again.
        """
        if isinstance(run, ThreadEnd):
            return self._having_forgotten(self._threads.end(run))
        recorded = self._recorded_run(run)
        if recorded is None:
            return []
        return self._having_forgotten(self._keep(recorded, is_ours=isinstance(run, Recorder)))

    def bring_in(self, run: RecordedRun) -> tuple[int, ReasoningTrace] | None:
        """Write a run of another tool, or what has been added to it since it was written.

        Returns:
            Its place and its clean document if it waits to be scored, else None.
        """
        failed, known = None, privacy.KnownSecrets()
        try:
            clean = self._without_secrets(run, known)
        except RedactionError as error:
            logger.warning("trace %s is kept without its texts: %s", run.trace.id, error)
            clean, failed = _without_words(run), error
        with self._store.transaction():
            stored = self._store.reading(run.trace.id)
            if stored is not None and not stored.says_less_than(run):
                return None
            seq = self._store.record(clean, seq=None if stored is None else stored.seq)
            if failed is not None:
                self._store.fail(seq, "not_redacted", failed)
            return (seq, clean.trace) if self._store.is_recorded(seq) else None

    def end_overdue(self) -> list[int]:
        """End the first run that has waited too long for what follows; return its rows."""
        return self._having_forgotten(self._threads.end_overdue())

    def next_end_in_s(self) -> float:
        """Return the seconds until the next waiting run times out; infinity if none waits."""
        return self._threads.next_end_in_s()

    def _keep(self, recorded: RecordedRun, *, is_ours: bool) -> list[int]:
        known = self._secrets.of(recorded)
        try:
            clean = self._without_secrets(recorded, known)
            kept = self._write(clean, known, is_ours=is_ours)
        except RedactionError as error:
            logger.warning("trace %s is kept without its texts: %s", recorded.trace.id, error)
            return self._write(_without_words(recorded), known, is_ours=is_ours, failed=error)
        self._secrets.keep(recorded, known)
        return kept

    def _write(
        self,
        run: RecordedRun,
        known: privacy.KnownSecrets,
        *,
        is_ours: bool,
        failed: RedactionError | None = None,
    ) -> list[int]:
        """Write a clean run; one of ours whose id the file has gets another."""
        with self._store.transaction():
            if (holding := self._store.holding(run)) is not None:
                if not is_ours:
                    self._say_that_it_is_there(run)
                    return []
                if holding == "other":  # else it was written, and is tried again
                    run = _under_another_id(run)
            if failed is None:
                clean = partial(_without_known, policy=self._policy, known=known)
                return self._threads.keep(run, clean=clean)
            seq = self._store.record(run)
            self._store.fail(seq, "not_redacted", failed)
        return []

    def _having_forgotten(self, changed: list[int]) -> list[int]:
        """Forget the secrets of threads in which no run waits."""
        if self._secrets:
            self._secrets.forget_all_but(self._threads.waiting())
        return changed

    def _recorded_run(self, run: Recorder | ReasoningTrace | Owned) -> RecordedRun | None:
        settings = self._settings
        if isinstance(run, Recorder):
            return assemble(
                run,
                domain=settings.domain,
                visibility=settings.visibility,
                privacy_level=settings.privacy_level,
                agent_id=settings.agent_id,
            )
        if isinstance(run, Owned):
            owner = fingerprint(run.owner)
            return bounded(_as_strict_as(settings, run.trace), self._limits).model_copy(
                update={"owner": owner}
            )
        return bounded(_as_strict_as(settings, run), self._limits)

    def _say_that_it_is_there(self, run: RecordedRun) -> None:
        """Count a document that was submitted twice; log the first."""
        shield.count("submit: a trace with the id of one in the file")
        if _THERE not in self._said:
            self._said.add(_THERE)
            logger.warning(_THERE, run.trace.id)

    def _without_secrets(self, run: RecordedRun, known: privacy.KnownSecrets) -> RecordedRun:
        """Return the redacted run; rules whose package is missing are left to the outbox."""
        try:
            return _fitting(run, self._policy, known)
        except RedactionError as error:
            if error.reason not in privacy.ENGINE_TROUBLE:
                raise
            if error.where not in self._said:
                self._said.add(error.where)
                logger.warning("nothing will be sent: %s", error)
            return _fitting(run, self._policy.without_packages(), known)


def _as_strict_as(settings: Settings, trace: ReasoningTrace) -> ReasoningTrace:
    """Apply the stricter visibility and privacy level: the trace's own or the settings'."""
    metadata = trace.metadata
    stricter = {
        "visibility": min(metadata.visibility, settings.visibility, key=_VISIBILITIES.index),
        "privacy_level": min(metadata.privacy_level, settings.privacy_level, key=_LEVELS.index),
    }
    return trace.model_copy(update={"metadata": metadata.model_copy(update=stricter)})


def _under_another_id(run: RecordedRun) -> RecordedRun:
    """Give a run a new id: after a fork, or with patched randomness, two can share one."""
    luck = random.Random()  # noqa: S311 - what gave out one id twice may do so again
    another = f"kp:trace:{UUID(int=luck.getrandbits(128), version=4)}"
    logger.warning("two runs have the id %s: the second is kept as %s", run.trace.id, another)
    return run.model_copy(update={"trace": run.trace.model_copy(update={"id": another})})


def _fitting(run: RecordedRun, policy: privacy.Policy, known: privacy.KnownSecrets) -> RecordedRun:
    """Return the redacted run, without its largest steps if it is too large to redact."""
    for _ in range(_MOST_TOO_LARGE):
        try:
            return _without_secrets(run, policy, known)
        except RedactionError as error:
            if error.reason != "too_large":
                raise
            logger.warning("a step of trace %s is not kept: %s", run.trace.id, error)
            run = _without_largest_step(run)
    return _without_secrets(run, policy, known)


def _without_secrets(
    run: RecordedRun, policy: privacy.Policy, known: privacy.KnownSecrets
) -> RecordedRun:
    """Return the run redacted: a secret found in one place is removed everywhere."""
    redact = partial(
        privacy.redact_jsonable, _facts(run), level="private", policy=policy, known=known
    )
    beside, count = redact(), len(known)
    redacted = privacy.redact_trace(run.trace, level="private", policy=policy, known=known)
    return _cleaned(run, redact() if len(known) > count else beside, redacted)


def _without_known(
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


def _without_words(run: RecordedRun) -> RecordedRun:
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
