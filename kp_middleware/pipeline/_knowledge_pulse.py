"""The pipeline as users hold it: settings in, runs in, nothing to configure to begin."""

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import closing
from numbers import Real
from types import EllipsisType, TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar, Unpack, overload

from kp_middleware.confidence import Confidences
from kp_middleware.database import TROUBLE
from kp_middleware.forwarding import Registry
from kp_middleware.pipeline._backlog import Backlog
from kp_middleware.pipeline._exit import close_at_exit, still_open
from kp_middleware.pipeline._forwarding_worker import ForwardingWorker
from kp_middleware.pipeline._run_queue import Feedback, FinishedRun, RunQueue, ThreadEnd
from kp_middleware.pipeline._scoring_worker import ScoringWorker
from kp_middleware.pipeline._stats import Stats, read_stats
from kp_middleware.recording import (
    Limits,
    Naming,
    Recorder,
    captured,
    carried,
    extractors_of,
    recorded_tool,
    shield,
)
from kp_middleware.runs import fingerprint
from kp_middleware.scoring import Embedder, Gate, shared_embedder
from kp_middleware.settings import Settings, SettingsKeywords
from kp_middleware.storage import RestingConnection, count_backlog
from kp_middleware.traces import ReasoningTrace

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("kp_middleware")

_MOMENT_S: Final = 0.1
_CLOSED: Final = "the pipeline is closed, which should come after the last run"
_TOO_MANY: Final = "too many wait to be scored: see kp.stats().trouble, or raise max_queue_bytes"
_PATIENCE_S: Final = 10.0  # with a worker that keeps no run for so long, and does not say why


class KnowledgePulse:
    """Records runs, scores them in the background, keeps them all, and forwards what is worth it.

    Nothing is opened, loaded or started before the first run has ended. Trouble of ours is logged
    and counted; it never reaches the agent.

    Args:
        embedder: Measures novelty; None means novelty is 0.5. By default MiniLM, shared by the
            process, unless ``KP_EMBEDDER`` is ``none``.
        gate: A rule of your own for what may leave, in place of ``threshold`` and ``max_per_day``.
            What it fails to decide stays here.
        settings: See `Settings`; each is also ``KP_…`` in the environment.

    Raises:
        pydantic.ValidationError: With the name of each setting that is wrong.
        ValueError: If the registry's URL is neither https nor on this machine.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with KnowledgePulse(db=f"{folder}/kp.db", embedder=None) as kp:
    ...         @kp.capture
    ...         def answer(question: str) -> str:
    ...             return "42"
    ...         answer("What is six times seven?")
    ...         kp.flush()
    '42'
    Backlog(unscored=0, unsent=0)
    """

    _default: "KnowledgePulse | None" = None
    _default_lock = threading.Lock()

    def __init__(
        self,
        *,
        embedder: Embedder | EllipsisType | None = ...,
        gate: Gate | None = None,
        **settings: Unpack[SettingsKeywords],
    ) -> None:
        self.settings = Settings(**settings)
        self._limits = Limits.of(self.settings)
        if isinstance(embedder, str):
            raise TypeError("embedder is an object that embeds, or None; KP_EMBEDDER takes words")
        if gate is not None and not callable(getattr(gate, "decide", None)):
            raise TypeError('gate is an object with a name that decides; threshold takes "top 10%"')
        if embedder is ...:
            threads = self.settings.embedder_threads
            embedder = shared_embedder(self.settings.embedder, threads=threads)
        self._embedder = embedder
        self._gate = gate
        self._start_afresh()
        self._closed = False
        close_at_exit(self)

    @classmethod
    def default(cls) -> "KnowledgePulse":
        """The pipeline of this process, from ``KP_*`` and files; one until it is closed."""
        with KnowledgePulse._default_lock:
            if KnowledgePulse._default is None or KnowledgePulse._default.closed:
                KnowledgePulse._default = cls()
            return KnowledgePulse._default

    @property
    def closed(self) -> bool:
        """Whether it records nothing more."""
        return self._closed

    def start_recording(self, framework: str) -> Recorder | None:
        """A recorder for one run of a framework, or None if recording is switched off.

        When the recorder is finished, its run goes through the pipeline.
        """
        if not self.settings.enabled:
            return None
        if self._closed:
            self._drop()
            return None
        return Recorder(self._take, self._limits, framework=framework)

    @overload
    def capture(self, function: F, /) -> F: ...

    @overload
    def capture(
        self,
        /,
        *,
        name: str | None = None,
        objective: str | None = None,
        domain: str | None = None,
        confidence: Confidences = None,
    ) -> Callable[[F], F]: ...

    def capture(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        objective: str | None = None,
        domain: str | None = None,
        confidence: Confidences = None,
    ) -> Any:
        """Record each call of a function as a run; inside a run, as a part of that.

        For plain, async and generator functions, methods among them; the function stays what it is.

        Args:
            function: With ``@kp.capture``; or use ``@kp.capture(domain="finance")``.
            name: Of the agent; by default the function's.
            objective: The parameter that says what is asked; by default the first text argument.
            domain: Picks the weights of the score; by default the pipeline's.
            confidence: Tells from a result how sure the agent is, 0 to 1, or None where that does
                not tell; or several, of which the first that knows is believed. Asked where the
                agent does not say so itself. See `kp_middleware.confidence`.

        Raises:
            TypeError: If a confidence is not a function.
        """
        if function is None:
            naming = Naming(name, objective, domain, extractors_of(confidence))
            return lambda function: self._capture(function, naming)
        return self._capture(function, Naming())

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(self, /, *, name: str | None = None) -> Callable[[F], F]: ...

    def tool(self, function: Any = None, /, *, name: str | None = None) -> Any:
        """Record each call of a function as a tool call of the run it is called in.

        Args:
            function: With ``@kp.tool``; or use ``@kp.tool(name="search")``.
            name: Of the tool; by default the function's.
        """
        if function is None:
            return lambda function: self._tool(function, name)
        return self._tool(function, name)

    def wrap_context(self, function: Callable[P, R], /) -> Callable[P, R]:
        """The same function, which belongs to the run we are in, whichever thread calls it.

        New threads and pools do not know of the run that started them. Wrap what they shall call
        inside the run; it may be called any number of times, also at once, and may be async. The
        body of a generator runs where it is iterated.

        ``pool.map(kp.wrap_context(fetch), pages)``
        """
        return carried(function)

    def submit(self, trace: ReasoningTrace) -> None:
        """Put a trace that you built yourself through the pipeline.

        Raises:
            TypeError: If it is not a ReasoningTrace.
        """
        if not isinstance(trace, ReasoningTrace):
            raise TypeError(f"a ReasoningTrace is needed, this is a {type(trace).__name__}")
        if self.settings.enabled:
            self._take(trace)

    def end_thread(
        self,
        thread_id: str | int,
        *,
        success: bool | None = None,
        confidence: float | None = None,
    ) -> None:
        """Nothing follows in a thread: what waits of it, in the file, is one trace and is scored.

        Args:
            thread_id: As LangGraph's ``configurable`` has it.
            success: Whether its task was done; None means as its last run ended, and that a run
                which waits for a person is not complete.
            confidence: How sure of it, 0 to 1; None means what the last run said.

        Raises:
            ValueError: If the confidence is not from 0 to 1.
        """
        _check_confidence(confidence)
        if self.settings.enabled:
            self._take(ThreadEnd(fingerprint(str(thread_id)), success, confidence))

    def feedback(
        self,
        trace_id: str | None,
        *,
        success: bool | None = None,
        confidence: float | None = None,
    ) -> None:
        """Say how a run really went, once it is known: minutes, or months, after its end.

        It is scored and decided again in the background. What clears now is sent; what waits to be
        sent, and does not any more, stays here; what was sent is not sent again.

        Args:
            trace_id: Of its trace: what ``current_trace().trace_id`` was inside of it, or the
                ``trace_id`` of a LangChain handler. None, where nothing was recorded, is ignored.
            success: Whether its task was done; None means as it is known.
            confidence: How sure of it, 0 to 1; None means what the agent said, or where it did not
                say, as ``success`` suggests.

        Raises:
            ValueError: If the confidence is not from 0 to 1, or nothing is said.
            TypeError: If the id is not a text, or success neither true nor false: a word that comes
                from a form would open the gate.
        """
        _check_confidence(confidence)
        if success not in {None, True, False}:
            raise TypeError(f"success is True or False, this is {success!r}")
        if success is None and confidence is None:
            raise ValueError("feedback says something: give success, confidence or both")
        if trace_id is not None and not isinstance(trace_id, str):
            raise TypeError(f"a trace's id is a text, this is a {type(trace_id).__name__}")
        if self.settings.enabled and trace_id is not None:
            said = None if success is None else bool(success)
            sure = None if confidence is None else float(confidence)
            self._take(Feedback(trace_id, said, sure, time.time()))

    def flush(self, timeout_s: float = 5.0) -> Backlog:
        """Wait until what was recorded is scored and what may leave is sent, or the time is over.

        Never waits for a model that is being downloaded, for a registry that asks for patience, or
        for a file that cannot be opened.

        Returns:
            What is not done.
        """
        if not self.settings.sync and any(self._backlog()):
            self._scorer.look_again()  # another process may have left it
        self._wait(time.monotonic() + timeout_s)
        return self._backlog()

    def stats(self) -> Stats:
        """How many were recorded, scored, sent and lost. Never raises; quick (30 ms of 100,000)."""
        return read_stats(
            self.settings.db,
            in_memory=self._queue.waiting,
            dropped=self._queue.dropped,
            swallowed=shield.failures,
            trouble=self._scorer.trouble or (self._sender.trouble if self._sender else None),
        )

    def close(self, timeout_s: float = 5.0) -> None:
        """Flush, then stop. What is not scored or sent by then the next process does. Idempotent.

        Takes longer only where finished runs are in memory and the file takes them.
        """
        self._end(time.monotonic(), timeout_s)

    def _end(self, since_s: float, timeout_s: float) -> None:
        """Close: all of it in the time that began at ``since_s``, unless runs are being kept."""
        if self._closed:
            return
        self._closed = True
        deadline = since_s + timeout_s
        self._wait(deadline)
        if self.settings.sync:
            self._scorer.keep_all(since_s + _PATIENCE_S)
        else:
            self._queue.wait_until_kept(since_s, _PATIENCE_S, patience_in_trouble_s=timeout_s)
        self._scorer.stop(max(_MOMENT_S, deadline - time.monotonic()))
        if self._sender is not None:
            self._sender.stop(0.0)
        if self._queue.waiting:
            why = self._scorer.trouble or f"{self.settings.db}: kp-middleware doctor looks into it"
            words = "finished runs that could not be kept, and are lost: %d; %s"
            logger.warning(words, self._queue.waiting, why)

    def _wait(self, deadline: float) -> None:
        if self.settings.sync:
            self._scorer.work_until(deadline)
        else:
            self._queue.wait_until_done(deadline - time.monotonic())
        if self._sender is not None:
            self._sender.wait_until_idle(max(0.0, deadline - time.monotonic()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _capture(self, function: F, naming: Naming) -> F:
        if not self.settings.enabled:
            return function
        return captured(function, lambda: self.start_recording("python"), naming)

    def _tool(self, function: F, name: str | None) -> F:
        return recorded_tool(function, name) if self.settings.enabled else function

    @shield
    def _take(self, run: FinishedRun) -> None:
        """Called on the agent's thread: puts the run on the queue, and no more."""
        if self._closed or not self._queue.put(run):
            self._drop()
        elif self.settings.sync:
            self._scorer.score_ours()
        else:
            self._scorer.start()

    def _drop(self) -> None:
        if self._queue.drop() == 1:
            why = _CLOSED if self._closed else _TOO_MANY
            logger.warning("a run was dropped: %s; more are counted, not logged", why)

    def _start_in_a_child(self) -> None:
        self._scorer.leave_to_the_parent()
        self._start_afresh()

    def _start_afresh(self) -> None:
        """With an empty queue and no thread: at first, and in a forked child."""
        self._queue = RunQueue(self.settings.max_queue_bytes)
        self._sender = self._make_sender()
        self._scorer = ScoringWorker(
            self._queue, self.settings, self._embedder, self._gate, on_queued=self._start_sending
        )

    def _make_sender(self) -> ForwardingWorker | None:
        api_key = self.settings.api_key
        if api_key is None or self.settings.visibility == "private":
            return None
        registry = Registry(self.settings.registry_url, api_key, agent_id=self.settings.agent_id)
        return ForwardingWorker(self.settings, registry)

    def _start_sending(self) -> None:
        if self._sender is not None:
            self._sender.start()

    def _backlog(self) -> Backlog:
        """From the file, where it exists; what cannot be read there is not counted."""
        try:
            with closing(RestingConnection(self.settings.db, read_only=True)) as connection:
                unscored, unsent = count_backlog(connection)
        except TROUBLE:
            unscored = unsent = 0
        return Backlog(self._queue.waiting + unscored, unsent)


def _check_confidence(confidence: float | None) -> None:
    if confidence is None:
        return
    if isinstance(confidence, bool) or not isinstance(confidence, Real):
        raise TypeError(f"confidence is a number from 0 to 1, this is {confidence!r}")
    if not 0 <= float(confidence) <= 1:
        raise ValueError(f"confidence is from 0 to 1, this is {confidence!r}")


def _start_afresh_in_the_child() -> None:
    """A fork takes no threads along, but locks as they were.

    What the parent had in its queue the parent keeps and scores. Files it had none open: see
    `ForkGate`, whose part comes first, because it was imported before.
    """
    KnowledgePulse._default_lock = threading.Lock()  # noqa: SLF001 - our own
    for pipeline in still_open():
        pipeline._start_in_a_child()  # noqa: SLF001


os.register_at_fork(after_in_child=_start_afresh_in_the_child)
