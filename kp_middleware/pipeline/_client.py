"""`KnowledgePulse`, the public interface of the pipeline."""

import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import EllipsisType
from typing import Any, ParamSpec, Self, TypeVar, Unpack, overload

from kp_middleware.confidence import Confidences
from kp_middleware.core.gates import Gate
from kp_middleware.embedding import Embedder, shared_embedder
from kp_middleware.export import Exporter
from kp_middleware.forks import at_fork
from kp_middleware.pipeline._endings import is_judging
from kp_middleware.pipeline._imports import Imported, Wanted, import_runs
from kp_middleware.pipeline._pipeline import Pipeline, tell_once
from kp_middleware.pipeline._reading import Reading
from kp_middleware.pipeline._threads import Built, Feedback, ThreadEnd
from kp_middleware.recording import (
    Limits,
    Naming,
    Recorder,
    captured,
    extractors_of,
    propagate_context,
    recorded_tool,
)
from kp_middleware.settings import Settings, SettingsKeywords
from kp_middleware.storage import SqliteStore, Store
from kp_middleware.traces import ReasoningTrace

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")


class KnowledgePulse(Reading, Pipeline):
    """Records runs, scores them in the background, keeps them all, and forwards what is worth it.

    Nothing is opened, loaded or started before the first run has ended. Trouble of ours is logged
    and counted; it never reaches the agent. What is wrong outside of the program (a variable, a
    line of ``settings.toml``) raises nothing either: runs are recorded, nothing is sent; the log,
    `stats`, ``status`` and ``doctor`` say why.

    Args:
        embedder: Measures novelty; None means novelty is 0.5. By default MiniLM, shared by the
            process, unless ``KP_EMBEDDER`` is ``none``.
        gate: A rule of your own for what may leave, in place of ``threshold`` and ``max_per_day``.
            What it fails to decide stays here.
        exporter: Takes runs that cleared in place of the registry, and needs no API key: any
            function of one `Exporter` item, such as the ``append`` of a list.
        store: Keeps runs in place of the file, which commands, the page, `runs` and `recall` read.
        settings: See `Settings`; each is also ``KP_…`` in the environment.

    Raises:
        pydantic.ValidationError: With the name of each keyword that is wrong.

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
        exporter: Exporter | None = None,
        store: Store | None = None,
        **settings: Unpack[SettingsKeywords],
    ) -> None:
        usable = Settings.as_far_as_usable(**settings)
        tell_once(usable)
        self._limits = Limits.of(usable)
        if isinstance(embedder, str):
            raise TypeError("embedder must be an Embedder or None; set names in KP_EMBEDDER")
        if gate is not None and not callable(getattr(gate, "decide", None)):
            raise TypeError('gate is an object with a name that decides; threshold takes "top 10%"')
        if embedder is ...:
            embedder = shared_embedder(usable.embedder, threads=usable.embedder_threads)
        store = SqliteStore.at(usable.db) if store is None else store
        super().__init__(store, usable, embedder, gate, exporter)

    @classmethod
    def default(cls) -> "KnowledgePulse":
        """Return the shared pipeline of this process, set up from ``KP_*`` and files."""
        with KnowledgePulse._default_lock:
            if KnowledgePulse._default is None or KnowledgePulse._default.closed:
                KnowledgePulse._default = cls()
            return KnowledgePulse._default

    def start_recording(self, framework: str) -> Recorder | None:
        """Return a recorder for one run of a framework, or None if recording is off.

        When the recorder is finished, its run goes through the pipeline.
        """
        if not self.settings.enabled or is_judging.get():
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
        owner: str | None = None,
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
        owner: str | None = None,
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
            owner: The parameter that says whose run it is, such as a customer's id: it is recalled
                for nobody else. Only its fingerprint is kept.

        Raises:
            TypeError: If a confidence is not a function.
        """
        naming = Naming(name, objective, domain, extractors_of(confidence), owner)

        def record(function: Any) -> Any:
            if not self.settings.enabled:
                return function
            return captured(function, lambda: self.start_recording("python"), naming)

        return record if function is None else record(function)

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

        def record(function: Any) -> Any:
            return recorded_tool(function, name) if self.settings.enabled else function

        return record if function is None else record(function)

    def wrap_context(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Return the function bound to the current run, for calls from other threads.

        New threads and pools do not know of the run that started them. Wrap what they shall call
        inside the run; it may be called any number of times, also at once, and may be async. The
        body of a generator runs where it is iterated.

        ``pool.map(kp.wrap_context(fetch), pages)``
        """
        return propagate_context(function)

    def submit(self, trace: ReasoningTrace, *, owner: str | None = None) -> None:
        """Put a trace that you built yourself through the pipeline.

        Args:
            trace: The trace.
            owner: Whose it is, such as a customer's id: it is recalled for nobody else. Only its
                fingerprint is kept.

        Raises:
            TypeError: If it is not a ReasoningTrace.
        """
        if not isinstance(trace, ReasoningTrace):
            raise TypeError(f"expected a ReasoningTrace, got {type(trace).__name__}")
        if self.settings.enabled:
            self._take(Built(trace, owner))

    def import_runs(
        self,
        format_: str,
        /,
        *paths: str | Path,
        since: datetime | None = None,
        domain: str | None = None,
        whole_sessions: bool = False,
        shareable: bool = False,
    ) -> Imported:
        """Import runs that another tool has kept, score them, and return how many there were.

        They are private, in the order of their times, and the same runs when imported again. As
        the command ``import``; where the model is still to be downloaded, they are scored later.

        Args:
            format_: ``claude-code``, ``codex``, ``messages``, ``swe_agent``, ``atif``, ``otlp``,
                ``langsmith``, ``langfuse``, ``traces``, or ``auto``: by the first lines of a file.
            paths: Files and folders; none means where the tool keeps them.
            since: Only runs that began since then; without a time zone it is local time.
            domain: Of all of them; None means that of the settings.
            whole_sessions: Whether a session is one run; else each message of a person begins one.
            shareable: Whether they may leave if they clear the gate.

        Raises:
            ValueError: If there is no such format, file or folder.
            DatabaseError: If the file cannot be used.
        """
        wanted = Wanted.of(
            format_,
            paths,
            since_s=None if since is None else since.timestamp(),
            domain=domain,
            whole_sessions=whole_sessions,
            shareable=shareable,
        )
        return import_runs(self._store, self.settings, self._embedder, wanted)

    def end_thread(
        self,
        thread_id: str | int,
        *,
        success: bool | None = None,
        confidence: float | None = None,
    ) -> None:
        """End a thread: the runs of it that wait in the file become one trace, which is scored.

        Args:
            thread_id: As LangGraph's ``configurable`` has it.
            success: Whether its task was done; None means as its last run ended, and that a run
                which waits for a person is not complete.
            confidence: How sure of it, 0 to 1; None means what the last run said.

        Raises:
            ValueError: If the confidence is not from 0 to 1.
            TypeError: If it is no number, or success neither true nor false.
        """
        end = ThreadEnd.of(thread_id, success=success, confidence=confidence)
        if self.settings.enabled:
            self._take(end)

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
            TypeError: If the id is not a text, the confidence no number, or success neither true
                nor false: a word that comes from a form would open the gate.
        """
        told = Feedback.of(trace_id, success=success, confidence=confidence)
        if self.settings.enabled and told is not None:
            self._take(told)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _renew_the_lock() -> None:
    """Replace the lock after a fork, which copies locks as they are."""
    KnowledgePulse._default_lock = threading.Lock()  # noqa: SLF001 - our own


at_fork(after_in_child=_renew_the_lock)
