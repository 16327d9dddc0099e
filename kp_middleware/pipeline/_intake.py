"""Write finished runs: redacted, limited in size, and joined with their threads."""

import logging
import math
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Final, NamedTuple, Self, TypeAlias
from uuid import UUID

from kp_middleware import privacy, recording
from kp_middleware.errors import RedactionError
from kp_middleware.instants import epoch_s, instant
from kp_middleware.recording import Recorder, shield
from kp_middleware.runs import RecordedRun, ThreadPart, fingerprint
from kp_middleware.settings import Settings
from kp_middleware.storage import PausedRun, RunPicker, Store
from kp_middleware.traces import Outcome, ReasoningTrace, Step, Task

logger = logging.getLogger("kp_middleware")

_DUPLICATE_ID: Final = (
    "trace %s is already in the file and was not stored again: give each trace its own id;"
    " further cases are counted, not logged"
)
_VISIBILITIES: Final = ("private", "org", "network")  # the strictest first
_LEVELS: Final = ("aggregated", "federated", "private")  # the strictest first
_TOO_LARGE: Final = "(not kept: it is too large to be redacted)"
_TEXT_FIELDS: Final = ("error_type", "agent_name", "model", "thread_id", "tags")
_CLEARED: Final = dict.fromkeys(("agent_id", "framework", "validated_by"))


class SubmittedTrace(NamedTuple):
    """A trace that a user built."""

    trace: ReasoningTrace
    owner: str | None  # None: no owner


class ThreadEnd(NamedTuple):
    thread: str
    success: bool | None
    confidence: float | None


class Feedback(NamedTuple):
    """Feedback on a run, given after its end; None: not stated."""

    trace_id: str
    success: bool | None
    confidence: float | None
    given_at_s: float

    @classmethod
    def of(
        cls, trace_id: str | None, *, success: bool | None, confidence: float | None
    ) -> Self | None:
        """Check the arguments of `KnowledgePulse.feedback`; None if ``trace_id`` is None."""
        outcome = checked_outcome(success, confidence)
        if outcome == (None, None):
            raise ValueError("feedback needs success, confidence or both")
        if trace_id is None:
            return None
        if not isinstance(trace_id, str):
            raise TypeError(f"trace_id must be a str, got {type(trace_id).__name__}")
        return cls(trace_id, *outcome, time.time())


def checked_outcome(
    success: bool | None,  # noqa: FBT001 - an outcome
    confidence: float | None,
) -> tuple[bool | None, float | None]:
    """Return a stated outcome; raise as `KnowledgePulse.feedback`."""
    if success not in {None, True, False}:
        raise TypeError(f"success must be a bool, got {success!r}")
    stated = None if success is None else bool(success)
    if confidence is None:
        return stated, None
    if isinstance(confidence, bool) or not isinstance(confidence, Real):
        raise TypeError(f"confidence must be a number (0 to 1), got {confidence!r}")
    if not 0 <= float(confidence) <= 1:
        raise ValueError(f"confidence must be from 0 to 1, got {confidence!r}")
    return stated, float(confidence)


Submission: TypeAlias = Recorder | SubmittedTrace | ThreadEnd | Feedback
"""A program's input: a finished run, a trace, the end of a thread, or feedback."""


@dataclass
class Intake:
    """Writes finished runs, joins a paused run with the next of its thread, or ends it.

    Complete runs are added to ``next``, to be scored.
    """

    store: Store
    settings: Settings
    policy: privacy.Policy
    next: RunPicker
    failed_engines: set[str] = field(default_factory=set)  # that have been logged
    next_end_in_s: float = math.inf  # of a paused run, as of the last `end`
    secrets: dict[str, privacy.KnownSecrets] = field(default_factory=dict)
    """Secrets of threads with a paused run, by fingerprint; never written to the file."""

    def keep(self, run: Recorder | SubmittedTrace) -> None:
        """Redact a run and write it, unless it has no step."""
        settings = self.settings
        if isinstance(run, Recorder):
            recorded = recording.assemble(
                run,
                domain=settings.domain,
                visibility=settings.visibility,
                privacy_level=settings.privacy_level,
                agent_id=settings.agent_id,
            )
        else:
            recorded = recording.bounded(
                _with_stricter_privacy(settings, run.trace), self.settings.limits
            )
            if run.owner is not None:
                recorded = recorded.model_copy(update={"owner": fingerprint(run.owner)})
        if recorded is None:
            return
        thread = "" if recorded.part is None else recorded.part.thread
        known = self.secrets.get(thread) or privacy.KnownSecrets()
        is_ours = isinstance(run, Recorder)
        try:
            clean = self._redact(recorded, known)
            self._write(clean, known, is_ours=is_ours)
        except RedactionError as error:
            logger.warning("trace %s is stored without its texts: %s", recorded.trace.id, error)
            self._write(_without_texts(recorded), known, is_ours=is_ours, failed=error)
        else:
            if thread and known:
                self.secrets.pop(thread, None)
                self.secrets[thread] = known
        if self.secrets:
            self._forget_secrets()

    def end(self, thread_end: ThreadEnd | None = None) -> bool:
        """End the paused runs of a thread, or, without one, those that have waited too long.

        Return False if there are none; without a thread, update ``next_end_in_s``.
        """
        if thread_end is None:
            until = self.store.next_overdue()
            left_s = math.inf if until is None else epoch_s(until) - time.time()
            self.next_end_in_s = max(0.0, left_s)
            if self.next_end_in_s > 0:
                return False
        success, confidence = (None, None) if thread_end is None else thread_end[1:]
        with self.store.transaction():
            now, store = instant(time.time()), self.store
            paused = store.overdue(now) if thread_end is None else store.paused(thread_end.thread)
            for one in paused:
                if not one.run.shape.steps:
                    self.store.remove(one.seq)
                    continue
                over = recording.ended(one.run, success=success, confidence=confidence)
                self.store.record(over, seq=one.seq)
                if not over.complete and one.part.awaits == "human":
                    self.store.set_reason(one.seq, "not_continued")
        self.next.add(dict.fromkeys(one.seq for one in paused))
        if self.secrets:
            self._forget_secrets()
        return bool(paused)

    def import_run(self, run: RecordedRun) -> tuple[int, ReasoningTrace] | None:
        """Write or extend a run of another tool; return it if it is to be scored."""
        failed = None
        try:
            clean = self._redact(run, privacy.KnownSecrets())
        except RedactionError as error:
            logger.warning("trace %s is stored without its texts: %s", run.trace.id, error)
            clean, failed = _without_texts(run), error
        with self.store.transaction():
            stored = self.store.stored_version(run.trace.id)
            if stored is not None and not stored.is_outdated_by(run):
                return None
            seq = self.store.record(clean, seq=None if stored is None else stored.seq)
            if failed is not None:
                self.store.fail(seq, "not_redacted", failed)
            return (seq, clean.trace) if self.store.is_recorded(seq) else None

    def _write(
        self,
        run: RecordedRun,
        known: privacy.KnownSecrets,
        *,
        is_ours: bool,
        failed: RedactionError | None = None,
    ) -> None:
        """Write a redacted run, joined with the one it continues: both ids lead to one trace.

        A recorded run whose id is taken gets another.
        """
        seq, aliases = None, set[str]()
        with self.store.transaction():
            if (stored := self.store.stored_version(run.trace.id)) is not None:
                if not is_ours:
                    if shield.count("submit: a trace with the id of one in the file"):
                        logger.warning(_DUPLICATE_ID, run.trace.id)
                    return
                if not stored.is_same_run(run):  # else a retry
                    run = _under_another_id(run)
            if failed is not None:
                self.store.fail(self.store.record(run), "not_redacted", failed)
                return
            earlier = None if run.part is None else self._earlier_part(run.part)
            if earlier is not None:
                parts = (earlier.run, run)  # by start, not in order of writing
                first, second = sorted(parts, key=lambda part: part.trace.metadata.created_at)
                run = recording.joined(first, second, self.settings.limits)
                if known:  # one part was written before all secrets were known
                    run = _redacted(run, self.policy, known, is_new=False)
                seq, aliases = earlier.seq, {one.trace.id for one in parts} - {run.trace.id}
            elif run.part is not None and run.part.follows and run.part.awaits is None:
                whole = recording.detach_from_thread(run) if run.shape.steps else None
                if whole is None:
                    return  # nothing to continue: not a run
                run = self._with_thread_objective(whole, run.part)
            awaits = None if run.part is None else run.part.awaits
            waits_s = {"human": self.settings.paused_ttl_s, "turn": self.settings.thread_idle_s}
            until = None if awaits is None else instant(time.time() + waits_s[awaits])
            seq = self.store.record(run, seq=seq, until=until, aliases=aliases)
        self.next.add({seq: run if until is None and run.complete else None})

    def _earlier_part(self, part: ThreadPart) -> PausedRun | None:
        """Return the paused run of the same thread that this one continues, or None.

        That is the run whose question is answered, else the newest that waits for a turn, or for a
        person with the same agent. If the agent starts over, LangGraph drops its questions: they
        are only marked, since another unnamed agent may have asked them.
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

    def _with_thread_objective(self, run: RecordedRun, part: ThreadPart) -> RecordedRun:
        """Give a run that resumes a failed one the objective of its thread."""
        if part.was_asked or run.thread_id is None or fingerprint(run.thread_id) != part.thread:
            return run  # an id that was redacted may be another's
        objective = self.store.last_objective(run.thread_id, run.agent_name)
        if objective is None:
            return run
        task = run.trace.task.model_copy(update={"objective": objective})
        return run.model_copy(update={"trace": run.trace.model_copy(update={"task": task})})

    def _forget_secrets(self) -> None:
        """Forget secrets of threads without a paused run, and the oldest if there are too many."""
        threads = self.store.paused_threads()
        self.secrets = {one: known for one, known in self.secrets.items() if one in threads}
        while sum(map(len, self.secrets.values())) > 10_000:
            del self.secrets[next(iter(self.secrets))]

    def _redact(self, run: RecordedRun, known: privacy.KnownSecrets) -> RecordedRun:
        """Redact a run, dropping its largest steps if it is too large.

        Rules whose package is missing are left to the outbox.
        """
        policy, too_large = self.policy, 0
        while True:
            try:
                return _redacted(run, policy, known)
            except RedactionError as error:
                if error.reason == "too_large" and too_large < 16:
                    logger.warning("a step of trace %s is not stored: %s", run.trace.id, error)
                    run, too_large = _without_largest_step(run), too_large + 1
                elif error.reason in privacy.ENGINE_TROUBLE and policy is self.policy:
                    if error.where not in self.failed_engines:
                        self.failed_engines.add(error.where)
                        logger.warning("nothing will be sent: %s", error)
                    policy = policy.without_packages()
                else:
                    raise


def _with_stricter_privacy(settings: Settings, trace: ReasoningTrace) -> ReasoningTrace:
    metadata = trace.metadata
    stricter = {
        "visibility": min(metadata.visibility, settings.visibility, key=_VISIBILITIES.index),
        "privacy_level": min(metadata.privacy_level, settings.privacy_level, key=_LEVELS.index),
    }
    return trace.model_copy(update={"metadata": metadata.model_copy(update=stricter)})


def _under_another_id(run: RecordedRun) -> RecordedRun:
    """Return the run with a new id: a fork or patched randomness can repeat one."""
    generator = random.Random()  # noqa: S311 - uuid4 has just repeated itself
    new_id = f"kp:trace:{UUID(int=generator.getrandbits(128), version=4)}"
    logger.warning("two runs have the id %s: the second is stored as %s", run.trace.id, new_id)
    return run.model_copy(update={"trace": run.trace.model_copy(update={"id": new_id})})


def _without_largest_step(run: RecordedRun) -> RecordedRun:
    steps = [*run.trace.steps]
    at = max(range(len(steps)), key=lambda at: len(steps[at].model_dump_json()))
    bare = {"content": None, "input": None, "output_summary": _TOO_LARGE}
    steps[at] = steps[at].model_copy(update=bare)
    return run.model_copy(update={"trace": run.trace.model_copy(update={"steps": tuple(steps)})})


def _redacted(
    run: RecordedRun, policy: privacy.Policy, known: privacy.KnownSecrets, *, is_new: bool = True
) -> RecordedRun:
    """Redact a run: a secret found in one place is removed everywhere.

    From a run that is not new, remove only the ``known`` secrets.
    """
    redact_values = partial(
        privacy.redact_jsonable, level="private", policy=policy, known=known, only_known=not is_new
    )
    named = [name for step in run.facts for name in (step.agent, step.parent, step.model)]
    names = [*dict.fromkeys(name for name in named if name is not None)]
    facts = {**{name: getattr(run, name) for name in _TEXT_FIELDS}, "names": names}
    values = redact_values(facts)
    count = len(known)
    redacted = privacy.redact_trace(
        run.trace, level="private", policy=policy, known=known, only_known=not is_new
    )
    if len(known) > count:
        values = redact_values(facts)
    clean: dict[str | None, str | None] = {None: None}
    clean.update(zip(names, values.value.pop("names"), strict=True))
    steps = tuple(
        step._replace(agent=clean[step.agent], parent=clean[step.parent], model=clean[step.model])
        for step in run.facts
    )
    counts = Counter(run.redactions) + Counter(values.counts) + Counter(redacted.counts)
    changes = {"trace": redacted.trace, "facts": steps, "redactions": dict(counts)}
    return run.model_copy(update={**values.value, **changes})


def _without_texts(run: RecordedRun) -> RecordedRun:
    trace = run.trace
    bare = trace.model_copy(
        update={
            "task": Task(objective="(not kept: it could not be redacted)"),
            "steps": tuple(Step(step_id=step.step_id, type=step.type) for step in trace.steps),
            "outcome": Outcome(result_summary="", confidence=trace.outcome.confidence),
            "source_skill": None,
            "knowledge_graph_delta": None,
            "metadata": trace.metadata.model_copy(update={**_CLEARED, "task_domain": "general"}),
        }
    )
    facts = {**dict.fromkeys(_TEXT_FIELDS), "tags": (), "facts": (), "part": None}
    return run.model_copy(update={**facts, "trace": bare})
