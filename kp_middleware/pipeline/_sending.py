"""The threads that send runs to the registry and to exporters, and requests of commands."""

import logging
import math
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
from itertools import islice
from typing import Final, Literal, NamedTuple

from kp_middleware import locations, privacy
from kp_middleware.core.formula import SIGNALS
from kp_middleware.core.gates import DAY_S
from kp_middleware.errors import (
    KnowledgePulseError,
    ProblemKind,
    RedactionError,
    RegistryForbiddenError,
    RegistryUnavailableError,
)
from kp_middleware.export import Outbox, OwnExporter, Registry, Sender
from kp_middleware.instants import epoch_s
from kp_middleware.outbox_items import idempotency_key
from kp_middleware.pipeline._dispatch import Dispatch, prepared
from kp_middleware.pipeline._worker import LAST_STEP_S, LOOK_AGAIN_S, Worker
from kp_middleware.rate_limit import LocalPace, Pace
from kp_middleware.runs import ExportedRun, StepFacts
from kp_middleware.settings import Settings
from kp_middleware.shared_log import Link, PostgresPace, SharedOutbox, load
from kp_middleware.storage import (
    DATABASE_ERRORS,
    ExportCandidate,
    OutboxAdmin,
    PacingTable,
    Run,
    SharedPace,
    SqliteStore,
    Store,
    fork_lock,
)
from kp_middleware.traces import ReasoningTrace

logger = logging.getLogger("kp_middleware")

WORTH_WAITING_S: Final = 60.0  # past a deadline: an item due by then may be sent earlier
_TOKEN_FIELDS: Final = ("input_tokens", "output_tokens")
_RUN_FIELDS: Final = ("started_at", "duration_ms", "state", "reason_code", *_TOKEN_FIELDS)
_STEP_FIELDS: Final = ("call_id", "model_latency_ms", *_TOKEN_FIELDS)


class SendingWorker(Worker):
    """Sends the items of the outbox to the registry, or to a user's exporter."""

    def __init__(self, store: Store, settings: Settings, exporter: Registry | OwnExporter) -> None:
        super().__init__("kp-sending", settings.db, "nothing is sent for now")
        self._store = store
        self._settings = settings
        self._sender: Sender | None = None
        self._next_at: float | None = math.inf
        self.exporter = exporter

    def start(self) -> bool:
        with self._changed:
            self._next_at = None
            self._wake.set()
        return super().start()

    def stop(self, timeout_s: float) -> bool:
        """Stop after the current trace; release one that the registry does not answer."""
        if super().stop(timeout_s):
            return True
        try:
            is_released = self._sender is not None and self._sender.abandon()
        except DATABASE_ERRORS as error:
            logger.debug("the current trace is sent again when its lease has expired: %s", error)
            is_released = True
        return not is_released and super().stop(LAST_STEP_S)

    def wait_until_idle(self, deadline: float, *, until: float = -math.inf) -> bool:
        """Wait until nothing is due before ``until``; False if the deadline comes first."""

        def is_idle() -> bool:
            return self._thread is None or (self._next_at is not None and self._next_at > until)

        with self._changed:
            return self._changed.wait_for(is_idle, max(0.0, deadline - time.monotonic()))

    def _set_next_at(self, next_at: float | None) -> None:
        """Set when the next item is due, on the monotonic clock; None while sending."""
        with self._changed:
            if next_at is None or not self._wake.is_set():
                self._next_at = next_at
                self._changed.notify_all()

    def _work(self) -> None:
        link = shared_link(self._settings)
        with (
            closing(self._store.clone()) as store,
            closing(self.exporter),
            nullcontext() if link is None else closing(link),
        ):
            outbox, pace = self._outbox_and_pace(store, link)
            sender = self._sender = Sender(outbox, self.exporter, pace=pace, clock=time.time)
            while not self._stopping.is_set():
                self._wake.clear()
                self._set_next_at(None)  # so that a program does not exit during a request
                try:
                    more_in_s = sender.send_due(self._stopping)
                except DATABASE_ERRORS as error:
                    self._report(error)
                    self._set_next_at(math.inf)
                    self._stopping.wait(LOOK_AGAIN_S)
                    continue
                self.trouble = None
                wait_s = math.inf if more_in_s is None else more_in_s
                if wait_s > 0:
                    self._set_next_at(time.monotonic() + wait_s)
                    self._wake.wait(min(wait_s, 3600.0))  # the clock may have been set
            with suppress(*DATABASE_ERRORS):
                sender.send_due(self._stopping)  # store the last answer, release the pace

    def _outbox_and_pace(self, store: Store, link: Link | None, /) -> tuple[Outbox, LocalPace]:
        """Return the outbox and pace of all hosts if they share a log; an exporter has its own."""
        exporter, settings = self.exporter, self._settings
        if isinstance(exporter, OwnExporter):
            return store.outbox(exporter.url, settings.agent_id), _unlimited()
        pace = shared_pace(exporter, settings, link)
        if link is None:
            return store.outbox(settings.registry_url, settings.agent_id), pace
        return SharedOutbox(link, exporter.url, exporter.agent_id), pace


def _unlimited() -> LocalPace:
    return LocalPace(Pace().at_interval(time.time(), 0.0), time.time)


class ExporterSender(SendingWorker):
    """Gives runs that began at ``since`` or later to an additional exporter."""

    def __init__(
        self,
        store: SqliteStore,
        settings: Settings,
        exporter: OwnExporter,
        *,
        send: Literal["cleared", "all"],
        since: str,
    ) -> None:
        super().__init__(store, settings, exporter)
        self._send, self._since = send, since

    def _outbox_and_pace(self, store: Store, _: Link | None, /) -> tuple[Outbox, LocalPace]:
        assert isinstance(store, SqliteStore)  # noqa: S101 - as it was made with
        assert isinstance(self.exporter, OwnExporter)  # noqa: S101
        dispatch = Dispatch(store, self._settings, self.exporter)
        choose, prepare = partial(self._selects, dispatch), partial(self._prepare, dispatch.policy)
        name, since = self.exporter.url, self._since
        cursor = store.export_cursor(name, choose=choose, prepare=prepare, since=since)
        return cursor, _unlimited()

    def _selects(self, dispatch: Dispatch, run: ExportCandidate) -> bool | None:
        """Return whether to give a run to the exporter; None if that is not known yet."""
        if run.state in {"recorded", "paused"}:
            return None
        if run.visibility == "private" or self._send == "all":
            return run.visibility != "private"
        if run.decision != "forward":
            return False
        ending = dispatch.store.ending(run.seq)
        why = dispatch.blocking_reason(run.visibility, ending, run.started_at)
        if why != "unconfirmed":
            return why is None
        age_s = time.time() - epoch_s(run.started_at)
        return False if age_s > self._settings.confirm_within_days * DAY_S else None

    def _prepare(
        self, policy: privacy.Policy, run: Run, document: str, attempts: int
    ) -> ExportedRun | None:
        """Prepare a run for the exporter; None if it cannot be redacted."""
        try:
            body, names = self._redacted(policy, run, document)
        except RedactionError as error:
            words = "trace %s is not given to %s: %s"
            logger.warning(words, run.id, self.exporter.url, error)
            return None
        agent_name, model, thread_id, error_type = islice(names, 4)
        scoring = run.scoring
        return ExportedRun(
            run.seq,
            body,
            idempotency_key(body, agent_id=self._settings.agent_id),
            attempts,
            trace_id=run.id,
            score=run.score,
            signals=dict(zip(SIGNALS, scoring.signals, strict=True)) if scoring else {},
            decision=scoring.decision if scoring else None,
            gate=scoring.gate if scoring else None,
            agent_name=agent_name,
            model=model,
            thread_id=thread_id,
            error_type=error_type,
            steps=tuple(
                StepFacts(
                    epoch_s(step.started_at) if step.started_at else None,
                    agent=next(names),
                    model=next(names),
                    **{name: getattr(step, name) for name in _STEP_FIELDS},
                )
                for step in run.steps
            ),
            **{name: getattr(run, name) for name in _RUN_FIELDS},
        )

    def _redacted(
        self, policy: privacy.Policy, run: Run, document: str
    ) -> tuple[bytes, Iterator[str | None]]:
        trace = ReasoningTrace.model_validate_json(document)
        level, score = trace.metadata.privacy_level, run.scoring.score if run.scoring else 0.0
        names = [run.agent_name, run.model, run.thread_id, run.error_type]
        names += [name for step in run.steps for name in (step.agent, step.model)]
        body, _, error_text = prepared(trace, score, self._settings.agent_id, policy)
        if body is None:
            raise RedactionError(error_text or "")
        return body, iter(privacy.redact_jsonable(names, level=level, policy=policy).value)


def shared_link(settings: Settings, pod: str = platform.node()) -> Link | None:
    if settings.shared is None:
        return None
    with fork_lock:
        load()
    return Link(settings.shared.get_secret_value(), pod)


def shared_pace(registry: Registry, settings: Settings, link: Link | None) -> SharedPace:
    """Return the pace of all processes that send with this key."""
    url, agent_id, key_hash = registry.url.rstrip("/"), registry.agent_id, registry.key_hash
    if link is not None:
        of_all = PostgresPace(link, registry=url, agent_id=agent_id, key_hash=key_hash)
        return SharedPace(of_all, longest_request_s=registry.timeout_s, clock=of_all.clock)
    usual, fallback = (
        PacingTable(path, registry=url, agent_id=agent_id, key_hash=key_hash)
        for path in locations.pacing_files(settings.db)
    )
    return SharedPace(usual, fallback=fallback, longest_request_s=registry.timeout_s)


def drain(settings: Settings, *, timeout_s: float, on_tick: Callable[[], None]) -> str | None:
    """Send all items until the timeout; return the file's error, or None.

    Ends early if the next item is due much later. ``on_tick`` is called about once a second.

    Raises:
        KnowledgePulseError: If nothing may be sent by these settings.
    """
    deadline = time.monotonic() + timeout_s
    if settings.visibility == "private":
        raise KnowledgePulseError("visibility is private: nothing is sent; see KP_VISIBILITY")
    registry = _registry(settings, "set KP_API_KEY to a key with scope write")
    worker = SendingWorker(SqliteStore.at(settings.db), settings, registry)
    worker.start()
    try:
        while (left_s := deadline - time.monotonic()) > 0:
            soon = time.monotonic() + min(left_s, LOOK_AGAIN_S)
            if worker.wait_until_idle(soon, until=deadline + WORTH_WAITING_S):
                break
            on_tick()
        return worker.trouble
    finally:
        worker.stop(registry.timeout_s)


def check_key(registry: Registry, settings: Settings) -> bool:
    """Check the key, and whether it has scope write.

    Returns:
        False if the key is valid, but its scope cannot be checked while sending is paused.

    Raises:
        RegistryError: If the key is not accepted, or the registry fails.
    """
    with _rate_limited(registry, settings) as pace:
        try:
            registry.check_key()
            wait_s = pace.take()
            if wait_s == math.inf:
                words, problem = f"at an earlier request: {pace.problem.description}", pace.problem
                raise RegistryForbiddenError(403, words, problem.remedy, problem=problem)
            if wait_s > 0 or pace.spend() is None:
                return False
            registry.check_scope()
        except RegistryForbiddenError as error:
            problem = error.problem
            pace.settle(lambda before, now: before.forbidden(now, problem))
            raise
        pace.settle(lambda before, _: before.answered())
        return True


class Reconciliation(NamedTuple):
    """The comparison of a file's outbox with its registry."""

    registry: str
    agent_id: str
    there: int
    missing: Sequence[int]  # rows sent, but not in the registry
    of_others: int  # sent for another agent or none
    unknown: int  # in the registry, but not sent from this file


def reconcile(settings: Settings, outbox: OutboxAdmin) -> Reconciliation:
    """Compare the sent items of a file with the registry's traces of the user's agent."""
    url, agent_id = settings.registry_url, settings.agent_id
    if agent_id is None:
        raise KnowledgePulseError("set KP_AGENT_ID to the API key's agent")
    registry = _registry(settings, "set KP_API_KEY: the registry cannot be read without it")
    with closing(registry), _rate_limited(registry, settings):
        remote_ids = registry.export_ids(agent_id)
    sent = outbox.sent(url)
    ours = {one.remote_id: one.seq for one in sent if one.agent_id == agent_id}
    return Reconciliation(
        url,
        agent_id,
        there=len(ours.keys() & remote_ids),
        missing=[seq for remote_id, seq in ours.items() if remote_id not in remote_ids],
        of_others=sum(one.agent_id != agent_id for one in sent),
        unknown=len(remote_ids - {one.remote_id for one in sent}),
    )


def _registry(settings: Settings, remedy: str) -> Registry:
    if settings.api_key is None:
        raise KnowledgePulseError(remedy)
    try:
        return Registry(settings.registry_url, settings.api_key, agent_id=settings.agent_id)
    except ValueError as error:
        raise KnowledgePulseError(str(error)) from error


@contextmanager
def _rate_limited(registry: Registry, settings: Settings) -> Iterator[SharedPace]:
    """Hold the pace during a request; a 429 counts, and after one no other request is made.

    Raises:
        RegistryUnavailableError: If a 429 would cost the key.
    """
    pace = shared_pace(registry, settings, shared_link(settings))
    wait_s, problem = pace.take(), pace.problem
    if wait_s > 0 and problem.kind in {ProblemKind.LIMIT, ProblemKind.UNHEARD}:
        words = f"no request for {wait_s:,.0f} s: {problem}"
        raise RegistryUnavailableError(words, retry_after_s=wait_s, problem=problem)
    try:
        yield pace
    except RegistryUnavailableError as error:
        if error.status == 429:
            wait_s = error.retry_after_s or 0.0
            pace.settle(lambda before, now: before.limited(now, wait_s))
        else:
            pace.settle(lambda before, _: before.cancelled())
        raise
    finally:
        pace.release(ended=True)
