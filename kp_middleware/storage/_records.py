"""Immutable records of runs read from the file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from kp_middleware.core.formula import Adjustment, Signals, Weights

Row: TypeAlias = dict[str, Any]
"""One row by column name, as printed in JSON."""


class RunSummary(NamedTuple):
    """A summary of a run, as in a list.

    Attributes:
        id: Of its trace: ``kp:trace:…``.
        started_at: When it began: ``2026-11-01T09:14:03.120Z``.
        domain: Picks the weights of the score.
        score: From 0 to 1; None where there is none.
        margin: Score minus threshold; None where there is no score.
        success: Whether its task was done.
        step_count: How many steps it had.
        tool_count: How many different tools it used.
        duration_ms: How long it took; None where nobody measured it.
        state: What has become of it: ``withheld``, ``sent``, ``pending`` …
        reason: Why, in words; None where there is nothing to say.
        reason_code: The kind of reason, to compare with.
        objective: What it was for.
    """

    id: str
    started_at: str
    domain: str
    score: float | None
    margin: float | None
    success: bool
    step_count: int
    tool_count: int
    duration_ms: int | None
    state: str
    reason: str | None
    reason_code: str | None
    objective: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "RunSummary":
        """Create a summary from a row of a list."""
        known = {name: row[name] for name in cls._fields}
        return cls(**known | {"success": bool(row["success"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One step of a run.

    Attributes:
        number: Its place in the run, from 0.
        type: ``thought``, ``tool_call``, ``observation`` or ``error_recovery``.
        tool: The name of the tool; None where none was called.
        mcp_server: Where the tool came from.
        content: What was thought, or observed.
        input: What the tool was given.
        output_summary: What it answered.
        latency_ms: How long it took.
        agent: The agent inside the run's own that took the step.
        started_at: When it began: ``2026-11-01T09:14:03.120Z``.
        call_id: Of the tool call that it makes or answers: the same on both.
        parent: What it happened inside of: the ``call_id`` of a tool call, or an agent's name.
        model: The language model whose call it came from, on the first step of each call.
        input_tokens: What that call read.
        output_tokens: What it wrote.
        model_latency_ms: How long it took.
    """

    number: int
    type: str
    tool: str | None = None
    mcp_server: str | None = None
    content: str | None = None
    input: Any = None
    output_summary: str | None = None
    latency_ms: float | None = None
    agent: str | None = None
    started_at: str | None = None
    call_id: str | None = None
    parent: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    model_latency_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """The score of a run, and the gate's decision.

    Attributes:
        score: From 0 to 1.
        signals: The four, each from 0 to 1.
        weights: What each of them counts.
        rules: What changed the weighted sum, in order.
        scorer: Name and version.
        embedder: The fingerprint of the model; None where novelty was not measured.
        nearest_id: The most similar run before it; None where there was none, or it was removed.
        nearest_similarity: How similar, -1 to 1; None where there was nothing to compare with.
        gate: Name and setting of what decided.
        threshold: The score that it asked for.
        decision: ``forward`` or ``withhold``.
        decided_at: When.
    """

    score: float
    signals: Signals
    weights: Weights
    rules: tuple[Adjustment, ...]
    scorer: str | None
    embedder: str | None
    nearest_id: str | None
    nearest_similarity: float | None
    gate: str | None
    threshold: float | None
    decision: str | None
    decided_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRecord:
    """The outbox item of a run.

    Attributes:
        state: ``pending``, ``sending``, ``sent``, ``rejected``, ``blocked`` or ``cancelled``.
        reason: Why it is blocked, rejected or cancelled.
        attempts: How often it was tried.
        next_attempt_at: It is not tried before.
        last_error: What the last attempt met.
        http_status: What the registry answered last.
        sent_at: When it was accepted.
        remote_id: What the registry calls it.
        registry: Its URL.
        redactor: Name, version and digest of the rules that prepared it.
        redactions: What they took out: counts by kind.
    """

    state: str
    reason: str | None
    attempts: int
    next_attempt_at: str | None
    last_error: str | None
    http_status: int | None
    sent_at: str | None
    remote_id: str | None
    registry: str
    redactor: str
    redactions: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackRecord:
    """Feedback on a run after its end; None for a value that was not given."""

    given_at: str
    success: bool | None
    confidence: float | None
    success_before: bool
    confidence_before: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run, with everything that is stored about it.

    Attributes:
        id: Of its trace: ``kp:trace:…``.
        state: ``recorded``, ``paused``, ``scored``, ``incomplete`` or ``failed``.
        started_at: When it began: ``2026-11-01T09:14:03.120Z``.
        duration_ms: How long it took; None where nobody measured it.
        domain: Picks the weights of the score.
        objective: What it was for.
        result_summary: What came of it.
        success: Whether its task was done.
        confidence: How sure of that, 0 to 1.
        success_source: Who said so: ``said``, ``extracted``, ``assumed``, ``feedback``.
        confidence_source: Who said that, as for ``success_source``.
        error_type: The exception that ended it.
        framework: Where it ran: ``python``, ``langgraph`` …
        agent_id: Of the agent.
        agent_name: Of the agent.
        model: The language model that it asked.
        thread_id: The conversation that it belongs to.
        tags: As the program set them.
        privacy_level: What may leave of it: ``aggregated``, ``federated`` or ``private``.
        visibility: Who may see it: ``network``, ``org`` or ``private``.
        step_count: How many steps it had; the longest are not kept whole.
        tool_count: How many different tools it used.
        recovery_count: How many errors it survived.
        input_tokens: What the model read.
        output_tokens: What the model wrote.
        redactions: The secrets taken out before it was written: counts by kind.
        reason: Why it was let through, withheld or not scored, in words.
        reason_code: The kind of reason, to compare with.
        scoring: Its score and the gate's decision; None where there is none.
        steps: In order.
        outbox: Where it stands on its way to the registry; None where it was never queued.
        feedback: What was said of it after its end, in order.
    """

    id: str
    state: str
    started_at: str
    duration_ms: int | None
    domain: str
    objective: str
    result_summary: str | None
    success: bool
    confidence: float
    success_source: str | None
    confidence_source: str | None
    error_type: str | None
    framework: str | None
    agent_id: str | None
    agent_name: str | None
    model: str | None
    thread_id: str | None
    tags: tuple[str, ...]
    privacy_level: str
    visibility: str
    step_count: int
    tool_count: int
    recovery_count: int
    input_tokens: int | None
    output_tokens: int | None
    redactions: Mapping[str, int]
    reason: str | None
    reason_code: str | None
    scoring: Scoring | None
    steps: tuple[StepRecord, ...] = field(repr=False)
    outbox: OutboxRecord | None
    feedback: tuple[FeedbackRecord, ...]

    @property
    def score(self) -> float | None:
        """The score from 0 to 1; None if the run has none."""
        return None if self.scoring is None else self.scoring.score

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Run":
        """Create a run from a row of `History.trace`."""
        made: dict[str, Any] = {
            "success": bool(row["success"]),
            "tags": tuple(row["tags"]),
            "scoring": _scoring(row),
            "steps": tuple(map(_step, row["steps"])),
            "outbox": None if row["outbox"] is None else OutboxRecord(**row["outbox"]),
            "feedback": tuple(map(_feedback, row["feedback"])),
        }
        known = {name: row[name] for name in cls.__slots__ if name not in made}
        return cls(**known, **made)


def _scoring(row: Mapping[str, Any]) -> Scoring | None:
    if row["score"] is None:
        return None
    made: dict[str, Any] = {
        "signals": Signals(**{name: row[name] for name in Signals.__slots__}),
        "weights": Weights(**{name: row[f"{name}_weight"] for name in Weights.__slots__}),
        "rules": tuple(Adjustment(**rule) for rule in row["rules"]),
    }
    known = {name: row[name] for name in Scoring.__slots__ if name not in made}
    return Scoring(**known, **made)


def _step(row: Mapping[str, Any]) -> StepRecord:
    known = {name: row[name] for name in StepRecord.__slots__ if name in row}
    return StepRecord(number=row["step_id"], **known)


def _feedback(row: Mapping[str, Any]) -> FeedbackRecord:
    success = row["success"]
    return FeedbackRecord(
        given_at=row["given_at"],
        success=None if success is None else bool(success),
        confidence=row["confidence"],
        success_before=bool(row["success_before"]),
        confidence_before=row["confidence_before"],
    )
