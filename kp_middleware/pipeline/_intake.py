"""Writing of finished runs: without secrets, within their limits, joined with their threads."""

import logging
import math
import random
import time
from collections import Counter
from collections.abc import Collection
from functools import partial
from typing import Final, TypeAlias
from uuid import UUID

from kp_middleware import privacy
from kp_middleware.errors import RedactionError
from kp_middleware.instants import epoch_s, instant
from kp_middleware.pipeline._queue import Owned, ThreadEnd
from kp_middleware.recording import (
    Limits,
    Recorder,
    alone,
    assemble,
    bounded,
    ended,
    joined,
    shield,
)
from kp_middleware.runs import RecordedRun, ThreadPart, fingerprint
from kp_middleware.settings import Settings
from kp_middleware.storage import PausedRun, Store
from kp_middleware.traces import Outcome, ReasoningTrace, Step, Task

logger = logging.getLogger("kp_middleware")

_THERE: Final = (
    "trace %s is in the file already, and was not kept again: give each its own id;"
    " more of this kind are counted, not logged"
)
_VISIBILITIES: Final = ("private", "org", "network")  # the strictest first
_LEVELS: Final = ("aggregated", "federated", "private")  # that which removes most first
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
_LOOK_AGAIN_S: Final = 1.0
_NOBODY_SAYS: Final = ThreadEnd(thread="", success=None, confidence=None)

Written: TypeAlias = dict[int, RecordedRun | None]
"""Runs by ``seq``; None where the file is to be asked whether and how it is to be scored."""


class Intake:
    """Writes finished runs; what waits in its thread is joined with what follows, or ended."""

    def __init__(self, store: Store, settings: Settings, policy: privacy.Policy) -> None:
        self._store = store
        self._settings = settings
        self._limits = Limits.of(settings)
        self._policy = policy
        self._waits_s = {"human": settings.paused_ttl_s, "turn": settings.thread_idle_s}
        self._secrets: dict[str, privacy.KnownSecrets] = {}
        """Of threads in which a run waits, by fingerprint: they are never written."""
        self._said: set[str] = set()
        self._overdue_at: str | None = None
        self._looked_s = -math.inf

    def keep(self, run: Recorder | ReasoningTrace | Owned | ThreadEnd) -> Written:
        """Write a run without its secrets, unless it has no step; return what has changed."""
        if isinstance(run, ThreadEnd):
            self._looked_s = -math.inf
            with self._store.transaction():
                changed = dict(self._end(paused, run) for paused in self._store.paused(run.thread))
        else:
            recorded = self._recorded_run(run)
            if recorded is None:
                return {}
            if recorded.part is not None:
                self._looked_s = -math.inf
            changed = self._keep(recorded, is_ours=isinstance(run, Recorder))
        self._forget_secrets()
        return changed

    def bring_in(self, run: RecordedRun) -> tuple[int, ReasoningTrace] | None:
        """Write a run of another tool, or what was added to it; None if it need not be scored."""
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

    def end_overdue(self) -> Written:
        """End the first run that has waited too long for what follows; return it."""
        if self.next_end_in_s() > 0:
            return {}
        with self._store.transaction():
            overdue = self._store.overdue(instant(time.time()))
            changed = dict(self._end(paused, _NOBODY_SAYS) for paused in overdue)
        self._looked_s = -math.inf
        self._forget_secrets()
        return changed

    def next_end_in_s(self) -> float:
        """Return the seconds until the next waiting run times out; infinity if none waits."""
        now_s = time.monotonic()
        if now_s >= self._looked_s + _LOOK_AGAIN_S:
            self._overdue_at, self._looked_s = self._store.next_overdue(), now_s
        until = self._overdue_at
        return math.inf if until is None else max(0.0, epoch_s(until) - time.time())

    def _keep(self, recorded: RecordedRun, *, is_ours: bool) -> Written:
        thread = "" if recorded.part is None else recorded.part.thread
        known = self._secrets.get(thread) or privacy.KnownSecrets()
        try:
            clean = self._without_secrets(recorded, known)
            kept = self._write(clean, known, is_ours=is_ours)
        except RedactionError as error:
            logger.warning("trace %s is kept without its texts: %s", recorded.trace.id, error)
            return self._write(_without_words(recorded), known, is_ours=is_ours, failed=error)
        if thread and known:
            self._secrets.pop(thread, None)
            self._secrets[thread] = known
            while sum(map(len, self._secrets.values())) > _MOST_SECRETS:
                del self._secrets[next(iter(self._secrets))]
        return kept

    def _write(
        self,
        run: RecordedRun,
        known: privacy.KnownSecrets,
        *,
        is_ours: bool,
        failed: RedactionError | None = None,
    ) -> Written:
        """Write a clean run; one of ours whose id the file has gets another."""
        with self._store.transaction():
            if (stored := self._store.reading(run.trace.id)) is not None:
                if not is_ours:
                    shield.count("submit: a trace with the id of one in the file")
                    self._warn_once(_THERE, _THERE, run.trace.id)
                    return {}
                if not stored.is_of(run):  # else it was written, and is tried again
                    run = _under_another_id(run)
            if failed is None:
                return self._write_part(run, known)
            seq = self._store.record(run)
            self._store.fail(seq, "not_redacted", failed)
        return {}

    def _write_part(self, run: RecordedRun, known: privacy.KnownSecrets) -> Written:
        """Write a run, joined with the one it continues: one trace, to which both ids lead."""
        earlier = self._before(run)
        if earlier is None:
            whole = self._alone(run)
            return {} if whole is None else self._record(whole, None)
        parts = (earlier.run, run)  # in the order of their start, not of writing
        first, second = sorted(parts, key=lambda part: part.trace.metadata.created_at)
        whole = joined(first, second, self._limits)
        whole = _without_known(whole, policy=self._policy, known=known)
        aliases = {earlier.run.trace.id, run.trace.id} - {whole.trace.id}
        return self._record(whole, earlier.seq, aliases)

    def _before(self, run: RecordedRun) -> PausedRun | None:
        """Return the paused run of the same thread that this one continues, or None.

        It is the one whose question is answered, else the newest that waits for a turn, or for a
        person and has the same agent. Where the agent begins anew instead, LangGraph drops its
        questions: they are only marked, because another agent without a name may have asked them.
        """
        if run.part is None:
            return None
        agent, answers = run.part.agent, set(run.part.answers)
        paused = self._store.paused(run.part.thread)
        if not run.part.follows:
            for one in paused:
                if one.part.agent == agent:
                    self._store.leave(one.seq)
            return None
        asked = [one for one in paused if answers & {*one.part.questions}]
        ours = [
            one
            for one in paused
            if one.part.awaits == "turn" or (one.part.agent == agent and not one.is_left)
        ]
        return next(reversed(asked or ours), None)

    def _alone(self, run: RecordedRun) -> RecordedRun | None:
        """Return a run that nothing waits for as a whole run; None if it is not one."""
        if run.part is None or not run.part.follows or run.part.awaits is not None:
            return run
        whole = alone(run) if run.shape.steps else None
        return None if whole is None else self._with_its_objective(whole, run.part)

    def _with_its_objective(self, run: RecordedRun, part: ThreadPart) -> RecordedRun:
        """Give a run that resumes a failed one the objective of its thread."""
        if part.was_asked or run.thread_id is None or fingerprint(run.thread_id) != part.thread:
            return run  # an id that was redacted may be another's
        objective = self._store.last_objective(run.thread_id, run.agent_name)
        if objective is None:
            return run
        task = run.trace.task.model_copy(update={"objective": objective})
        return run.model_copy(update={"trace": run.trace.model_copy(update={"task": task})})

    def _record(self, run: RecordedRun, seq: int | None, aliases: Collection[str] = ()) -> Written:
        until = None
        if run.part is not None and run.part.awaits is not None:
            until = instant(time.time() + self._waits_s[run.part.awaits])
        seq = self._store.record(run, seq=seq, until=until, aliases=aliases)
        return {seq: run if until is None and run.complete else None}

    def _end(self, paused: PausedRun, end: ThreadEnd) -> tuple[int, RecordedRun | None]:
        if not paused.run.shape.steps:
            self._store.remove(paused.seq)
            return paused.seq, None
        over = ended(paused.run, success=end.success, confidence=end.confidence)
        self._store.record(over, seq=paused.seq)
        if not over.complete and paused.part.awaits == "human":
            self._store.give_reason(paused.seq, "not_continued")
        return paused.seq, None

    def _forget_secrets(self) -> None:
        """Forget the secrets of threads in which no run waits."""
        if self._secrets:
            threads = self._store.paused_threads()
            self._secrets = {one: self._secrets[one] for one in self._secrets if one in threads}

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
        trace, owner = run if isinstance(run, Owned) else (run, None)
        recorded = bounded(_as_strict_as(settings, trace), self._limits)
        if owner is None:
            return recorded
        return recorded.model_copy(update={"owner": fingerprint(owner)})

    def _warn_once(self, kind: str, words: str, fact: object) -> None:
        if kind not in self._said:
            self._said.add(kind)
            logger.warning(words, fact)

    def _without_secrets(self, run: RecordedRun, known: privacy.KnownSecrets) -> RecordedRun:
        """Return the redacted run; rules whose package is missing are left to the outbox."""
        try:
            return _without_secrets(run, self._policy, known)
        except RedactionError as error:
            if error.reason not in privacy.ENGINE_TROUBLE:
                raise
            self._warn_once(error.where, "nothing will be sent: %s", error)
            return _without_secrets(run, self._policy.without_packages(), known)


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


def _without_secrets(
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


def _without_largest_step(run: RecordedRun) -> RecordedRun:
    steps = [*run.trace.steps]
    at = max(range(len(steps)), key=lambda at: len(steps[at].model_dump_json()))
    bare = {"content": None, "input": None, "output_summary": _TOO_LARGE}
    steps[at] = steps[at].model_copy(update=bare)
    return run.model_copy(update={"trace": run.trace.model_copy(update={"steps": tuple(steps)})})


def _redacted(run: RecordedRun, policy: privacy.Policy, known: privacy.KnownSecrets) -> RecordedRun:
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
