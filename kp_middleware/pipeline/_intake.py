"""Writing of finished runs: without secrets, within their limits, joined with their threads."""

import logging
import math
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import Final, NamedTuple, Self, TypeAlias
from uuid import UUID

from kp_middleware import privacy
from kp_middleware.errors import RedactionError
from kp_middleware.instants import epoch_s, instant
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
from kp_middleware.storage import PausedRun, RunPicker, Store
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
_UNSPOKEN: Final = dict.fromkeys(("agent_id", "framework", "validated_by"))


class Built(NamedTuple):
    """A trace that a user built."""

    trace: ReasoningTrace
    owner: str | None  # None: nobody's


class ThreadEnd(NamedTuple):
    """The end of a thread, named by its fingerprint: no further run follows."""

    thread: str
    success: bool | None
    confidence: float | None


class Feedback(NamedTuple):
    """Feedback on a run, given after its end; None where nothing is said of it."""

    trace_id: str
    success: bool | None
    confidence: float | None
    given_at_s: float

    @classmethod
    def of(
        cls, trace_id: str | None, *, success: bool | None, confidence: float | None
    ) -> Self | None:
        """Check what is said, now; None of no trace. Raises as `KnowledgePulse.feedback`."""
        told = checked(success, confidence)
        if told == (None, None):
            raise ValueError("feedback needs success, confidence or both")
        if trace_id is None:
            return None
        if not isinstance(trace_id, str):
            raise TypeError(f"trace_id must be a str, got {type(trace_id).__name__}")
        return cls(trace_id, *told, time.time())


def checked(
    success: bool | None,  # noqa: FBT001 - an outcome
    confidence: float | None,
) -> tuple[bool | None, float | None]:
    """Return what a program says of an outcome; raise as `KnowledgePulse.feedback`."""
    if success not in {None, True, False}:
        raise TypeError(f"success must be a bool, got {success!r}")
    said = None if success is None else bool(success)
    if confidence is None:
        return said, None
    if isinstance(confidence, bool) or not isinstance(confidence, Real):
        raise TypeError(f"confidence must be a number (0 to 1), got {confidence!r}")
    if not 0 <= float(confidence) <= 1:
        raise ValueError(f"confidence is from 0 to 1, this is {confidence!r}")
    return said, float(confidence)


FinishedRun: TypeAlias = Recorder | Built | ThreadEnd | Feedback
"""A recorded run, a trace that a user built, or news of those that came before."""


@dataclass
class Intake:
    """Writes finished runs; what waits in its thread is joined with what follows, or ended.

    What is to be scored then is added to ``next``.
    """

    store: Store
    settings: Settings
    policy: privacy.Policy
    next: RunPicker
    said: set[str] = field(default_factory=set)  # engines that do not work
    secrets: dict[str, privacy.KnownSecrets] = field(default_factory=dict)
    """Of threads in which a run waits, by fingerprint: they are never written."""

    @cached_property
    def limits(self) -> Limits:
        """The limits of a run, from the settings."""
        return Limits.from_settings(self.settings)

    def keep(self, run: Recorder | Built) -> None:
        """Write a run without its secrets, unless it has no step."""
        settings = self.settings
        if isinstance(run, Recorder):
            recorded = assemble(
                run,
                domain=settings.domain,
                visibility=settings.visibility,
                privacy_level=settings.privacy_level,
                agent_id=settings.agent_id,
            )
        else:
            recorded = bounded(_as_strict_as(settings, run.trace), self.limits)
            if run.owner is not None:
                recorded = recorded.model_copy(update={"owner": fingerprint(run.owner)})
        if recorded is None:
            return
        thread = "" if recorded.part is None else recorded.part.thread
        known = self.secrets.get(thread) or privacy.KnownSecrets()
        is_ours = isinstance(run, Recorder)
        try:
            clean = self._without_secrets(recorded, known)
            self._write(clean, known, is_ours=is_ours)
        except RedactionError as error:
            logger.warning("trace %s is kept without its texts: %s", recorded.trace.id, error)
            self._write(_without_words(recorded), known, is_ours=is_ours, failed=error)
        else:
            if thread and known:
                self.secrets.pop(thread, None)
                self.secrets[thread] = known
        if self.secrets:
            self._forget_secrets()

    def end(self, told: ThreadEnd | None = None) -> bool:
        """End the waiting runs of a thread; None: the first that has waited too long.

        False if there is none.
        """
        if told is None and self.next_end_in_s() > 0:
            return False
        success, confidence = (None, None) if told is None else told[1:]
        with self.store.transaction():
            now, store = instant(time.time()), self.store
            paused = store.overdue(now) if told is None else store.paused(told.thread)
            for one in paused:
                if not one.run.shape.steps:
                    self.store.remove(one.seq)
                    continue
                over = ended(one.run, success=success, confidence=confidence)
                self.store.record(over, seq=one.seq)
                if not over.complete and one.part.awaits == "human":
                    self.store.set_reason(one.seq, "not_continued")
        self.next.add(dict.fromkeys(one.seq for one in paused))
        if self.secrets:
            self._forget_secrets()
        return bool(paused)

    def bring_in(self, run: RecordedRun) -> tuple[int, ReasoningTrace] | None:
        """Write a run of another tool, or what was added to it; None if it need not be scored."""
        failed = None
        try:
            clean = self._without_secrets(run, privacy.KnownSecrets())
        except RedactionError as error:
            logger.warning("trace %s is kept without its texts: %s", run.trace.id, error)
            clean, failed = _without_words(run), error
        with self.store.transaction():
            stored = self.store.stored_version(run.trace.id)
            if stored is not None and not stored.is_outdated_by(run):
                return None
            seq = self.store.record(clean, seq=None if stored is None else stored.seq)
            if failed is not None:
                self.store.fail(seq, "not_redacted", failed)
            return (seq, clean.trace) if self.store.is_recorded(seq) else None

    def next_end_in_s(self) -> float:
        until = self.store.next_overdue()
        return math.inf if until is None else max(0.0, epoch_s(until) - time.time())

    def _write(
        self,
        run: RecordedRun,
        known: privacy.KnownSecrets,
        *,
        is_ours: bool,
        failed: RedactionError | None = None,
    ) -> None:
        """Write a clean run, joined with the one it continues: one trace, to which both ids lead.

        One of ours whose id the file has gets another.
        """
        seq, aliases = None, set[str]()
        with self.store.transaction():
            if (stored := self.store.stored_version(run.trace.id)) is not None:
                if not is_ours:
                    if shield.count("submit: a trace with the id of one in the file"):
                        logger.warning(_THERE, run.trace.id)
                    return
                if not stored.is_same_run(run):  # else it was written, and is tried again
                    run = _under_another_id(run)
            if failed is not None:
                self.store.fail(self.store.record(run), "not_redacted", failed)
                return
            earlier = None if run.part is None else self._before(run.part)
            if earlier is not None:
                parts = (earlier.run, run)  # in the order of their start, not of writing
                first, second = sorted(parts, key=lambda part: part.trace.metadata.created_at)
                run = joined(first, second, self.limits)
                if known:  # one part was written before all of them were known
                    run = _cleaned(run, self.policy, known, is_new=False)
                seq, aliases = earlier.seq, {one.trace.id for one in parts} - {run.trace.id}
            elif run.part is not None and run.part.follows and run.part.awaits is None:
                whole = alone(run) if run.shape.steps else None
                if whole is None:
                    return  # nothing waits for it: it is not a run
                run = self._with_its_objective(whole, run.part)
            awaits = None if run.part is None else run.part.awaits
            waits_s = {"human": self.settings.paused_ttl_s, "turn": self.settings.thread_idle_s}
            until = None if awaits is None else instant(time.time() + waits_s[awaits])
            seq = self.store.record(run, seq=seq, until=until, aliases=aliases)
        self.next.add({seq: run if until is None and run.complete else None})

    def _before(self, part: ThreadPart) -> PausedRun | None:
        """Return the paused run of the same thread that this one continues, or None.

        It is the one whose question is answered, else the newest that waits for a turn, or for a
        person and has the same agent. Where the agent begins anew instead, LangGraph drops its
        questions: they are only marked, because another agent without a name may have asked them.
        """
        agent, answers = part.agent, set(part.answers)
        paused = self.store.paused(part.thread)
        if not part.follows:
            for one in paused:
                if one.part.agent == agent:
                    self.store.mark_superseded(one.seq)
            return None
        asked = [one for one in paused if answers & {*one.part.questions}]
        ours = [
            one
            for one in paused
            if one.part.awaits == "turn" or (one.part.agent == agent and not one.is_superseded)
        ]
        return next(reversed(asked or ours), None)

    def _with_its_objective(self, run: RecordedRun, part: ThreadPart) -> RecordedRun:
        """Give a run that resumes a failed one the objective of its thread."""
        if part.was_asked or run.thread_id is None or fingerprint(run.thread_id) != part.thread:
            return run  # an id that was redacted may be another's
        objective = self.store.last_objective(run.thread_id, run.agent_name)
        if objective is None:
            return run
        task = run.trace.task.model_copy(update={"objective": objective})
        return run.model_copy(update={"trace": run.trace.model_copy(update={"task": task})})

    def _forget_secrets(self) -> None:
        """Forget the secrets of threads in which no run waits, and of the oldest if too many."""
        threads = self.store.paused_threads()
        self.secrets = {one: known for one, known in self.secrets.items() if one in threads}
        while sum(map(len, self.secrets.values())) > _MOST_SECRETS:
            del self.secrets[next(iter(self.secrets))]

    def _without_secrets(self, run: RecordedRun, known: privacy.KnownSecrets) -> RecordedRun:
        """Redact the run, without its largest steps if it is too large.

        Rules whose package is missing are left to the outbox.
        """
        policy, too_large = self.policy, 0
        while True:
            try:
                return _cleaned(run, policy, known)
            except RedactionError as error:
                if error.reason == "too_large" and too_large < _MOST_TOO_LARGE:
                    logger.warning("a step of trace %s is not kept: %s", run.trace.id, error)
                    run, too_large = _without_largest_step(run), too_large + 1
                elif error.reason in privacy.ENGINE_TROUBLE and policy is self.policy:
                    if error.where not in self.said:
                        self.said.add(error.where)
                        logger.warning("nothing will be sent: %s", error)
                    policy = policy.without_packages()
                else:
                    raise


def _as_strict_as(settings: Settings, trace: ReasoningTrace) -> ReasoningTrace:
    """Apply the stricter visibility and privacy level: the trace's own or the settings'."""
    metadata = trace.metadata
    stricter = {
        "visibility": min(metadata.visibility, settings.visibility, key=_VISIBILITIES.index),
        "privacy_level": min(metadata.privacy_level, settings.privacy_level, key=_LEVELS.index),
    }
    return trace.model_copy(update={"metadata": metadata.model_copy(update=stricter)})


def _under_another_id(run: RecordedRun) -> RecordedRun:
    """Return the run with a new id: after a fork, or with patched randomness, two can share one."""
    luck = random.Random()  # noqa: S311 - what gave out one id twice may do so again
    another = f"kp:trace:{UUID(int=luck.getrandbits(128), version=4)}"
    logger.warning("two runs have the id %s: the second is kept as %s", run.trace.id, another)
    return run.model_copy(update={"trace": run.trace.model_copy(update={"id": another})})


def _without_largest_step(run: RecordedRun) -> RecordedRun:
    steps = [*run.trace.steps]
    at = max(range(len(steps)), key=lambda at: len(steps[at].model_dump_json()))
    bare = {"content": None, "input": None, "output_summary": _TOO_LARGE}
    steps[at] = steps[at].model_copy(update=bare)
    return run.model_copy(update={"trace": run.trace.model_copy(update={"steps": tuple(steps)})})


def _cleaned(
    run: RecordedRun, policy: privacy.Policy, known: privacy.KnownSecrets, *, is_new: bool = True
) -> RecordedRun:
    """Redact the run: a secret found in one place is removed everywhere.

    A run that was redacted before loses the ``known`` secrets alone.
    """
    of_facts = privacy.redact_jsonable if is_new else privacy.redact_known_in_jsonable
    of_trace = privacy.redact_trace if is_new else privacy.redact_known_in_trace
    named = [name for step in run.facts for name in (step.agent, step.parent, step.model)]
    names = [*dict.fromkeys(name for name in named if name is not None)]
    facts = {**{name: getattr(run, name) for name in _SPOKEN_FACTS}, "names": names}
    beside = of_facts(facts, level="private", policy=policy, known=known)
    count = len(known)
    redacted = of_trace(run.trace, level="private", policy=policy, known=known)
    if len(known) > count:
        beside = of_facts(facts, level="private", policy=policy, known=known)
    clean: dict[str | None, str | None] = {None: None}
    clean.update(zip(names, beside.value.pop("names"), strict=True))
    steps = tuple(
        step._replace(agent=clean[step.agent], parent=clean[step.parent], model=clean[step.model])
        for step in run.facts
    )
    counts = Counter(run.redactions) + Counter(beside.counts) + Counter(redacted.counts)
    told = {"trace": redacted.trace, "facts": steps, "redactions": dict(counts)}
    return run.model_copy(update={**beside.value, **told})


def _without_words(run: RecordedRun) -> RecordedRun:
    trace = run.trace
    bare = trace.model_copy(
        update={
            "task": Task(objective=_UNREDACTED),
            "steps": tuple(Step(step_id=step.step_id, type=step.type) for step in trace.steps),
            "outcome": Outcome(result_summary="", confidence=trace.outcome.confidence),
            "source_skill": None,
            "knowledge_graph_delta": None,
            "metadata": trace.metadata.model_copy(update={**_UNSPOKEN, "task_domain": "general"}),
        }
    )
    facts = {**dict.fromkeys(_SPOKEN_FACTS), "tags": (), "facts": (), "part": None}
    return run.model_copy(update={**facts, "trace": bare})
