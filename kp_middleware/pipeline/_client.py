"""`KnowledgePulse`, the public interface of the pipeline."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any, Literal, ParamSpec, Self, TypeVar, overload

from kp_middleware import recording, storage
from kp_middleware.confidence import Confidences
from kp_middleware.errors import TraceNotFoundError
from kp_middleware.export import OwnExporter, Receipt
from kp_middleware.pipeline._delays import LOADING_S, start_daemon
from kp_middleware.pipeline._pipeline import NO_FILE, Pipeline, since_text
from kp_middleware.pipeline._sending import ExporterSender
from kp_middleware.privacy import Policy
from kp_middleware.recall import Memory, Recalled, question
from kp_middleware.runs import ExportedRun

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")


class KnowledgePulse(Pipeline):
    """Records runs, scores them in the background, stores them all, and forwards the best.

    Nothing is opened, loaded or started before the first run has ended. Internal errors are logged
    and counted; they never reach the agent. An invalid variable, or an invalid line of
    ``settings.toml``, raises nothing either: runs are recorded, nothing is sent, and the log,
    `stats`, ``status`` and ``doctor`` say why.

    Args:
        embedder: Measures novelty; None means novelty is 0.5. By default MiniLM, shared by the
            process, unless ``KP_EMBEDDER`` is ``none``.
        gate: Decides which runs are forwarded, in place of ``threshold`` and ``max_per_day``. If it
            fails, the run is withheld.
        exporter: Receives cleared runs in place of the registry, and needs no API key: any function
            of one `Exporter` item, such as the ``append`` of a list.
        store: Stores runs in place of the file. Commands, pages, `runs` and `recall` read only the
            file.
        settings: See `Settings`; each is also ``KP_…`` in the environment.

    Raises:
        pydantic.ValidationError: If a keyword is invalid; it names each.

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

    @classmethod
    def default(cls) -> "KnowledgePulse":
        """Return the shared pipeline of this process, set up from ``KP_*`` and files."""
        with cls._default_lock:
            if KnowledgePulse._default is None or KnowledgePulse._default.closed:
                KnowledgePulse._default = cls()
            return KnowledgePulse._default

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
        """Record each call of a function as a run, or inside a run, as part of it.

        Works for plain, async and generator functions and methods, and keeps their kind.

        Args:
            function: With ``@kp.capture``; or use ``@kp.capture(domain="finance")``.
            name: Name of the agent; by default the function's.
            objective: Name of the parameter with the task; by default the first string argument.
            domain: Selects the weights of the score; by default the pipeline's.
            confidence: Function from a result to the agent's confidence, 0 to 1, or None if
                unknown; or several, of which the first answer counts. Not called if the agent
                states its confidence. See `kp_middleware.confidence`.
            owner: Name of the parameter with the owner of the run, such as a customer's id: it is
                recalled for nobody else. Only a fingerprint is stored.

        Raises:
            TypeError: If a confidence is not a function.
        """
        terms: Any = {"name": name, "objective": objective, "domain": domain, "owner": owner}
        terms["confidence"] = recording.Extractors(confidence)

        def record(function: Any) -> Any:
            if not self.settings.enabled:
                return function
            return recording.captured(function, lambda: self.start_recording("python"), **terms)

        return record if function is None else record(function)

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(self, /, *, name: str | None = None) -> Callable[[F], F]: ...

    def tool(self, function: Any = None, /, *, name: str | None = None) -> Any:
        """Record each call of a function as a tool call of the run it is called in.

        Args:
            function: With ``@kp.tool``; or use ``@kp.tool(name="search")``.
            name: Name of the tool; by default the function's.
        """

        def record(function: Any) -> Any:
            return recording.recorded_tool(function, name) if self.settings.enabled else function

        return record if function is None else record(function)

    def wrap_context(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Return the function bound to the current run, for calls from other threads.

        Threads and pools do not inherit the run that started them. Wrap the function they call,
        inside the run; it may be async, and be called repeatedly and concurrently. The body of a
        generator runs where it is iterated.

        ``pool.map(kp.wrap_context(fetch), pages)``
        """
        return recording.propagate_context(function)

    def add_exporter(
        self,
        exporter: Callable[[ExportedRun], Receipt | None],
        *,
        send: Literal["cleared", "all"] = "cleared",
        name: str | None = None,
        since: datetime | None = None,
    ) -> None:
        """Add an exporter, which gets runs redacted as for the registry.

        It is called in a separate thread, at least once for each run that is scored, failed or
        incomplete; its position is stored in the file. Later feedback is not exported.

        Args:
            exporter: A function of one `ExportedRun`, such as ``kp_otel.OTLPExporter``; it raises
                what an `Exporter` does.
            send: ``cleared`` for runs that clear the gate, or ``all`` for all that are not private.
            name: Identifies it in the file, also after a restart; by default its own name.
            since: Export runs that began then or later; None means now. Used only when the name is
                new to the file.

        Raises:
            TypeError: If it is not callable, or the pipeline has a custom store.
            ValueError: If the name is taken.
        """
        first = since_text(since or datetime.now(UTC))
        if send not in {"cleared", "all"}:
            raise ValueError(f'send must be "cleared" or "all", got {send!r}')
        named: Any = name or getattr(exporter, "name", None)
        own = OwnExporter(exporter, named if isinstance(named, str) else None)
        if not isinstance(self._store, storage.SqliteStore):
            raise TypeError(NO_FILE)
        if any(one.exporter.url == own.url for one in self._senders if one is not self._sender):
            raise ValueError(f"{own.url} exists already: give each exporter its own name")
        if self.settings.visibility != "private" and not self.settings.problems:
            more = partial(ExporterSender, self._store, self.settings, own, send=send, since=first)
            self._exporter_senders.append(more)
            self._senders.insert(0, more())

    @cached_property
    def _memory(self) -> Memory:
        return Memory(self.settings.db, self._embedder, Policy.from_settings(self.settings))

    @contextmanager
    def _history(self) -> Iterator[storage.History | None]:
        if not isinstance(self._store, storage.SqliteStore):
            raise TypeError(NO_FILE)
        if not self.settings.db.exists():
            yield None
            return
        with storage.History(storage.Database(self.settings.db, read_only=True)) as history:
            yield history

    def runs(
        self,
        *,
        limit: int = 20,
        domain: str | None = None,
        state: str | None = None,
        above: bool | None = None,
        tool: str | None = None,
        failed: bool = False,
        since: datetime | None = None,
        text: str | None = None,
    ) -> tuple[storage.RunSummary, ...]:
        """Return the runs that match all filters, the newest first.

        Runs still in memory are not included: call `flush` first.

        Args:
            limit: The maximum number.
            domain: Only runs of this domain.
            state: Only runs in this state: ``withheld``, ``sent``, ``blocked`` …
            above: True for runs that reached the threshold, False for those that did not.
            tool: Only runs that used this tool.
            failed: Only runs that failed their task.
            since: Only runs that began then or later; without a time zone it is local time.
            text: Words to find in objective, result or steps; the best match comes first.

        Raises:
            ValueError: If there is no such state.
            DatabaseError: If the file cannot be read.
            TypeError: If the pipeline has a custom store.
        """
        if state is not None and state not in storage.STATES:
            raise ValueError(f"state must be one of {', '.join(storage.STATES)}, got {state!r}")
        filters = storage.Filters(
            domain=domain,
            above=above,
            state=state,
            tool=tool,
            failed=failed,
            since=None if since is None else since_text(since),
            text=text,
        )
        with self._history() as history:
            return () if history is None else tuple(history.runs(filters, limit=limit))

    def run(self, trace_id: str) -> storage.Run:
        """Return one run with its steps, its score and where it was sent.

        Args:
            trace_id: A prefix of its id, ``@last`` or ``@best``.

        Raises:
            TraceNotFoundError: If there is none, or more than one.
            DatabaseError: If the file cannot be read.

        >>> from tempfile import TemporaryDirectory
        >>> from kp_middleware import KnowledgePulse
        >>> with TemporaryDirectory() as folder:
        ...     with KnowledgePulse(db=f"{folder}/kp.db", embedder=None, sync=True) as kp:
        ...         answer = kp.capture(lambda question: "42")
        ...         answer("What is six times seven?")
        ...         run = kp.run("@last")
        ...         run.objective, run.result_summary, [step.type for step in run.steps]
        '42'
        ('What is six times seven?', '42', ['thought', 'observation'])
        """
        with self._history() as history:
            if history is None:
                path = self.settings.db
                raise TraceNotFoundError(f"{path} has no runs yet: record a run")
            return history.run(history.find(trace_id))

    def review_queue(self, limit: int = 10) -> tuple[storage.ReviewItem, ...]:
        """Return recent runs most worth a person's feedback, in order of priority.

        These are runs whose success is unknown, or only the agent's own word: first those that
        clear the gate, then those with the least certain estimate. If the former would fill the
        list, they get half of it. Answer with `feedback`.

        Raises:
            ValueError: If the limit is below 1.
            DatabaseError: If the file cannot be read.
        """
        if limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit!r}")
        with self._history() as history:
            return () if history is None else tuple(history.to_review(limit=limit))

    def recall(
        self,
        task: str,
        *,
        k: int = 1,
        domain: str | None = None,
        owner: str | None = None,
        max_age_days: float | None = None,
    ) -> list[Recalled]:
        """Return stored runs that succeeded at a similar task, the best first.

        Returns an empty list if none is similar. Considers only runs whose success is known or well
        estimated. Reads the file, calls no model but the embedder, and never raises. Inside a run,
        the results are recorded in it.

        Args:
            task: The task in the user's words. Recall again when the user has said more.
            k: The maximum number; more than one rarely helps.
            domain: Only runs of this domain.
            owner: Only runs of this owner, such as a customer. If any run of the file has an owner,
                this is required.
            max_age_days: Only runs of the last days.
        """
        recalls = self.settings.enabled and self.settings.recall
        if not (recalls and isinstance(self._store, storage.SqliteStore)):
            return []
        try:
            allowed = question(domain=domain, owner=owner, max_age_days=max_age_days)
            found = self._memory.recall(task, allowed, k=k)
        except Exception as error:  # noqa: BLE001 - the agent never pays for its memory
            recording.shield.swallow("recall", error, "nothing was recalled")
            return []
        recorder = recording.current_recorder()
        if recorder is not None:
            recorder.recalled.update((one.trace_id, None) for one in found)
        return found

    def warm_up_recall(self) -> None:
        """Load the model and index of `recall` in the background, in a second or two.

        `KPRecallMiddleware` does it when created. Otherwise the first recall waits.
        """
        if self.settings.enabled and self.settings.recall:
            start_daemon("kp-recall", self._warm_up, join_s=LOADING_S)

    def _warm_up(self) -> None:
        try:
            self._memory.warm_up()
        except Exception as error:  # noqa: BLE001 - recall itself will say what is wrong
            recording.shield.swallow("recall", error, "nothing was loaded")

    async def arecall(
        self,
        task: str,
        *,
        k: int = 1,
        domain: str | None = None,
        owner: str | None = None,
        max_age_days: float | None = None,
    ) -> list[Recalled]:
        """Call `recall` without blocking the event loop."""
        return await asyncio.to_thread(
            self.recall, task, k=k, domain=domain, owner=owner, max_age_days=max_age_days
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
