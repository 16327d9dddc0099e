"""The threads that give runs to a registry and to exporters, and requests of commands."""

import logging
import math
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import Final, Literal, NamedTuple

from kp_middleware import locations, privacy
from kp_middleware.core.formula import SIGNALS
from kp_middleware.core.gates import DAY_S
from kp_middleware.errors import (
    KnowledgePulseError,
    RedactionError,
    RegistryForbiddenError,
    RegistryUnavailableError,
)
from kp_middleware.export import Outbox, OwnExporter, Registry, Sender, payload
from kp_middleware.instants import epoch_s
from kp_middleware.outbox_items import idempotency_key
from kp_middleware.pipeline._dispatch import Dispatch
from kp_middleware.pipeline._worker import LAST_STEP_S, LOOK_AGAIN_S, Worker
from kp_middleware.rate_limit import OwnPace, Pace
from kp_middleware.runs import ExportedRun, StepFacts
from kp_middleware.settings import Settings
from kp_middleware.sharing import Link, PaceOfAll, SharedOutbox, load
from kp_middleware.storage import (
    TROUBLE,
    ExportCandidate,
    ExportCursor,
    OutboxAdmin,
    PacingTable,
    Run,
    SharedPace,
    SqliteStore,
    Store,
    no_fork,
)
from kp_middleware.traces import ReasoningTrace

logger = logging.getLogger("kp_middleware")

_AT_MOST_S: Final = 3600.0  # then we look again, whatever the clock did
_WORTH_WAITING_S: Final = 60.0  # past a deadline: what is due sooner may come sooner


class SendingWorker(Worker):
    """Sends what is in the outbox: only where there is a key, or an exporter of the user's."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        exporter: Registry | OwnExporter,
        outbox_of: Callable[[Store], Outbox] | None = None,
    ) -> None:
        super().__init__("kp-sending", settings.db, "nothing is sent for now")
        self._store = store
        self._outbox_of = outbox_of
        self._settings = settings
        self._exporter = exporter
        self._sender: Sender | None = None
        self._next_at: float | None = math.inf

    def start(self) -> bool:
        """Look into the outbox, in the background."""
        with self._changed:
            self._next_at = None
            self._wake.set()
        return super().start()

    def stop(self, timeout_s: float) -> bool:
        """Stop after the trace in hand; one that the registry is silent to is given back."""
        if super().stop(timeout_s):
            return True
        try:
            given_back = self._sender is not None and self._sender.abandon()
        except TROUBLE as error:
            logger.debug("the trace in hand is sent when its lease has ended: %s", error)
            given_back = True
        return not given_back and super().stop(LAST_STEP_S)

    def wait_until_idle(self, deadline: float) -> None:
        """Return when nothing can be sent now, or when the time is over."""
        self._wait_for_rest(-math.inf, deadline - time.monotonic())

    def wait_until_sent(self, deadline: float, look: Callable[[], None] = lambda: None) -> None:
        """Return when all is sent, or the time is over; at once if nothing goes for much longer."""
        while (left_s := deadline - time.monotonic()) > 0:
            if self._wait_for_rest(deadline + _WORTH_WAITING_S, min(left_s, LOOK_AGAIN_S)):
                return
            look()

    def _wait_for_rest(self, until: float, timeout_s: float) -> bool:
        """Wait until nothing can be sent before an instant; return False if the time is over."""

        def rests() -> bool:
            return self._thread is None or (self._next_at is not None and self._next_at > until)

        with self._changed:
            return self._changed.wait_for(rests, max(0.0, timeout_s))

    def _rest_until(self, next_at: float | None) -> None:
        """Set when the next item is sent, on the monotonic clock; None while one is sent."""
        with self._changed:
            if next_at is None or not self._wake.is_set():
                self._next_at = next_at
                self._changed.notify_all()

    def _work(self) -> None:
        link = shared_link(self._settings)
        with (
            closing(self._store.apart()) as store,
            closing(self._exporter),
            nullcontext() if link is None else closing(link),
        ):
            outbox, pace = self._outbox_and_pace(store, link)
            sender = self._sender = Sender(outbox, self._exporter, pace=pace, clock=time.time)
            while not self._stopping.is_set():
                self._wake.clear()
                self._rest_until(None)  # or a program could end in the midst of a request
                try:
                    more_in_s = sender.send_due(self._stopping)
                except TROUBLE as error:
                    self._say(error)
                    self._rest_until(math.inf)
                    self._stopping.wait(LOOK_AGAIN_S)
                    continue
                self.trouble = None
                wait_s = math.inf if more_in_s is None else more_in_s
                if wait_s > 0:
                    self._rest_until(time.monotonic() + wait_s)
                    self._wake.wait(min(wait_s, _AT_MOST_S))
            with suppress(*TROUBLE):
                sender.send_due(self._stopping)  # what is answered is written, our turn is over

    def _outbox_and_pace(self, store: Store, link: Link | None) -> tuple[Outbox, OwnPace]:
        """Return those of all hosts where they share a log; an exporter has a pace of its own."""
        exporter, settings = self._exporter, self._settings
        if isinstance(exporter, OwnExporter):
            own = OwnPace(Pace().at_interval(time.time(), 0.0), time.time)
            if self._outbox_of is not None:
                return self._outbox_of(store), own
            return store.outbox(exporter.url, settings.agent_id), own
        pace = shared_pace(exporter, settings, link)
        if link is None:
            return store.outbox(settings.registry_url, settings.agent_id), pace
        key = exporter.url, exporter.agent_id, exporter.key_hash
        return SharedOutbox(link, *key), pace


def shared_link(settings: Settings, pod: str = platform.node()) -> Link | None:
    """Return a connection to the shared log; None where there is none."""
    if settings.shared is None:
        return None
    with no_fork():
        load()
    return Link(settings.shared.get_secret_value(), pod)


def shared_pace(registry: Registry, settings: Settings, link: Link | None) -> SharedPace:
    """Return the pace shared by all processes that send with this key."""
    url, agent_id, key_hash = registry.url.rstrip("/"), registry.agent_id, registry.key_hash
    if link is not None:
        of_all = PaceOfAll(link, registry=url, agent_id=agent_id, key_hash=key_hash)
        return SharedPace(of_all, longest_request_s=registry.timeout_s, clock=of_all.clock)
    usual, beside = (
        PacingTable(path, registry=url, agent_id=agent_id, key_hash=key_hash)
        for path in locations.pacing_files(settings.db)
    )
    return SharedPace(usual, beside=beside, longest_request_s=registry.timeout_s)


def drain(settings: Settings, *, timeout_s: float, look: Callable[[], None]) -> str | None:
    """Send until all is sent or the time is over; return why the file could not be used, or None.

    Ends early if nothing goes for much longer. ``look`` is called about once a second.

    Raises:
        KnowledgePulseError: If nothing may be sent by these settings.
    """
    deadline = time.monotonic() + timeout_s
    if settings.visibility == "private":
        raise KnowledgePulseError("visibility is private: nothing is sent; see KP_VISIBILITY")
    registry = _registry(settings, "set KP_API_KEY to a key with scope write: nothing goes without")
    worker = SendingWorker(SqliteStore.at(settings.db), settings, registry)
    worker.start()
    try:
        worker.wait_until_sent(deadline, look)
        return worker.trouble
    finally:
        worker.stop(registry.timeout_s)


def check_key(registry: Registry, settings: Settings) -> bool:
    """Ask whether the registry knows the key, and whether that may write.

    Returns:
        False if it knows the key, and cannot be asked for more while sending pauses.

    Raises:
        RegistryError: If the key is of no use, or the registry in trouble.
    """
    with _at_the_pace(registry, settings) as pace:
        try:
            registry.check_key()
            wait_s = pace.take()
            if wait_s == math.inf:
                words, problem = f"at an earlier request: {pace.problem.what}", pace.problem
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
    """The comparison of a file's outbox with its registry.

    ``missing`` are the rows of what was sent and is not there; ``of_others`` counts what was sent
    for another agent or none, ``unknown`` what is there and was not sent from the file.
    """

    registry: str
    agent_id: str
    there: int
    missing: Sequence[int]
    of_others: int
    unknown: int


def reconcile(settings: Settings, outbox: OutboxAdmin) -> Reconciliation:
    """Compare what was sent from a file with what its registry has of the user's agent."""
    url, agent_id = settings.registry_url, settings.agent_id
    if agent_id is None:
        raise KnowledgePulseError("set KP_AGENT_ID to the API key's agent")
    registry = _registry(settings, "set KP_API_KEY: the registry shows nothing without it")
    with closing(registry), _at_the_pace(registry, settings):
        there = registry.export_ids(agent_id)
    sent = outbox.sent(url)
    ours = {one.remote_id: one.seq for one in sent if one.agent_id == agent_id}
    return Reconciliation(
        url,
        agent_id,
        there=len(ours.keys() & there),
        missing=[seq for remote_id, seq in ours.items() if remote_id not in there],
        of_others=sum(one.agent_id != agent_id for one in sent),
        unknown=len(there - {one.remote_id for one in sent}),
    )


def _registry(settings: Settings, remedy: str) -> Registry:
    """Return the user's registry; without an API key, raise with the remedy."""
    if settings.api_key is None:
        raise KnowledgePulseError(remedy)
    try:
        return Registry(settings.registry_url, settings.api_key, agent_id=settings.agent_id)
    except ValueError as error:
        raise KnowledgePulseError(str(error)) from error


@contextmanager
def _at_the_pace(registry: Registry, settings: Settings) -> Iterator[SharedPace]:
    """Keep to the pace during a request of any kind; a 429 counts."""
    pace = shared_pace(registry, settings, shared_link(settings))
    try:
        yield pace
    except RegistryUnavailableError as error:
        if error.status == 429:
            wait_s = error.retry_after_s or 0.0
            pace.settle(lambda before, now: before.limited(now, wait_s))
        else:
            pace.settle(lambda before, _: before.unasked())
        raise
    finally:
        pace.release(ended=True)


class MoreExporter(NamedTuple):
    """An exporter beside the outbox; ``since`` is when the first run that it is given began."""

    exporter: OwnExporter
    send: Literal["cleared", "all"]
    since: str

    def worker(self, store: Store, settings: Settings) -> SendingWorker:
        """Return the worker that gives it the runs of a store, the one a pipeline uses."""
        exporter, policy = self.exporter, privacy.Policy.of(settings)

        def cursor(own: Store) -> ExportCursor:
            assert isinstance(own, SqliteStore)  # noqa: S101 - `Pipeline.add_exporter` has looked
            dispatch = Dispatch(own, settings, policy, exporter)

            def choose(run: ExportCandidate) -> bool | None:
                """Return whether it is given the run; None: that is not known yet."""
                if run.state in {"recorded", "paused"}:
                    return None
                if run.visibility == "private" or self.send == "all":
                    return run.visibility != "private"
                if run.decision != "forward":
                    return False
                why = dispatch.blocking_reason(run.visibility, own.ending(run.seq), run.started_at)
                if why != "unconfirmed":
                    return why is None
                age_s = time.time() - epoch_s(run.started_at)
                return False if age_s > settings.confirm_within_days * DAY_S else None

            def prepare(run: Run, document: str, attempts: int) -> ExportedRun | None:
                try:
                    return exported(run, document, attempts, settings=settings, policy=policy)
                except RedactionError as error:
                    words = "trace %s is not given to %s: %s"
                    logger.warning(words, run.id, exporter.url, error)
                    return None

            return own.export_cursor(exporter.url, choose=choose, prepare=prepare, since=self.since)

        return SendingWorker(store, settings, exporter, cursor)


def exported(
    run: Run, document: str, attempts: int, *, settings: Settings, policy: privacy.Policy
) -> ExportedRun:
    """Return what leaves of a run: redacted as for the outbox, and scanned as it leaves."""
    trace = ReasoningTrace.model_validate_json(document)
    level = trace.metadata.privacy_level
    redacted = privacy.redact_trace(trace, level=level, policy=policy).trace
    scoring = run.scoring
    body = payload(redacted, score=scoring.score if scoring else 0.0, agent_id=settings.agent_id)
    privacy.check_clean(body, level=level, policy=policy)
    names = [run.agent_name, run.model, run.thread_id, run.error_type]
    told = [*names, *(name for step in run.steps for name in (step.agent, step.model))]
    cleaned = iter(privacy.redact_jsonable(told, level=level, policy=policy).value)
    agent_name, model, thread_id, error_type = (next(cleaned) for _ in names)
    return ExportedRun(
        run.seq,
        body,
        idempotency_key(body, agent_id=settings.agent_id),
        attempts,
        trace_id=run.id,
        started_at=run.started_at,
        duration_ms=run.duration_ms,
        state=run.state,
        score=scoring.score if scoring else None,
        signals={} if scoring is None else dict(zip(SIGNALS, scoring.signals, strict=True)),
        decision=scoring.decision if scoring else None,
        reason_code=run.reason_code,
        gate=scoring.gate if scoring else None,
        agent_name=agent_name,
        model=model,
        thread_id=thread_id,
        error_type=error_type,
        input_tokens=run.input_tokens,
        output_tokens=run.output_tokens,
        steps=tuple(
            StepFacts(
                epoch_s(step.started_at) if step.started_at else None,
                agent=next(cleaned),
                call_id=step.call_id,
                model=next(cleaned),
                input_tokens=step.input_tokens,
                output_tokens=step.output_tokens,
                model_latency_ms=step.model_latency_ms,
            )
            for step in run.steps
        ),
    )
