"""Immutable records of runs read from the file."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kp_middleware.core.evaluation import known_success
from kp_middleware.core.formula import SIGNALS, Adjustment, ScoreParts, Signals, Weights
from kp_middleware.database import from_row
from kp_middleware.storage._learning import RunEstimate


class RunSummary(NamedTuple):
    """A summary of a run, as in a list.

    Attributes:
        id: The id of its trace: ``kp:trace:…``.
        started_at: When it began: ``2026-11-01T09:14:03.120Z``.
        domain: The domain, which selects the weights of the score.
        score: The score from 0 to 1; None if there is none.
        margin: The score minus the threshold; None if there is no score.
        success: Whether its task was done.
        step_count: The number of steps.
        tool_count: The number of distinct tools.
        duration_ms: The duration; None if it was not measured.
        state: The state: ``withheld``, ``sent``, ``pending`` …
        reason: The reason for the state, in words, or None.
        reason_code: The code of the reason, for comparisons.
        objective: The objective of the task.
        snippet: After a search, the words around the match.
        threshold: The threshold of its gate.
        seq: The number of its row in the file.
        success_source: The source of ``success``; ``assumed`` if it is not known.
        tokens: The input and output tokens of its models; None if they were not reported.
        novelty: The novelty from 0 to 1; 0.5 if it was not measured, None without a score.
        pod: The host that recorded it, in a copy of the shared log; else None.
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
    snippet: str | None = None
    threshold: float | None = None
    seq: int = 0
    success_source: str = "assumed"
    tokens: int | None = None
    novelty: float | None = None
    pod: str | None = None

    @property
    def known_success(self) -> bool | None:
        """True if its task was done; None if that is only assumed."""
        return known_success(self.success, self.success_source)


ASSUMED: Final = "iif(coalesce(t.success_source, 'assumed') = 'assumed', 'assumed', NULL)"
"""The ``success_source`` in the document of the trace ``t``: ``assumed``, or NULL."""


ENDING: Final = """
    t.success, t.confidence, coalesce(t.success_source, 'assumed') AS success_source,
    coalesce(t.confidence_source, 'assumed') AS confidence_source
"""
"""The columns of the `Ending` of the trace ``t``."""


def document_sql(body: str) -> str:
    """Return SQL for the document of the trace ``t`` with its ``success_source``, if assumed."""
    return f"json_patch({body}, json_object('metadata', json_object('success_source', {ASSUMED})))"


class RunDocument(NamedTuple):
    """A run's ReasoningTrace as JSON, or None if it was lost, and what it does not say."""

    seq: int
    document: str | None
    success: bool
    success_source: str
    score: float | None
    model: str | None
    redactions: Mapping[str, int]

    @property
    def known_success(self) -> bool | None:
        return known_success(self.success, self.success_source)


class Embedding(NamedTuple):
    """The vector of a run: float32, little-endian, comparable within an embedder."""

    embedder: str
    vector: bytes


class OutboxItemSummary(NamedTuple):
    id: str
    state: str
    attempts: int
    size_bytes: int | None  # of its body
    redactions: Mapping[str, int]
    next_attempt_at: str | None
    claimed_until: str | None
    last_error: str | None
    sent_at: str | None
    remote_id: str | None
    registry: str
    redactor: str
    reason: str | None
    objective: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One step of a run.

    Attributes:
        number: The position in the run, from 0.
        type: ``thought``, ``tool_call``, ``observation`` or ``error_recovery``.
        tool: The name of the tool; None if none was called.
        mcp_server: The MCP server of the tool.
        content: The text of a thought or observation.
        input: The input of the tool.
        output_summary: The output of the tool.
        latency_ms: The latency of the step.
        started_at: When it began: ``2026-11-01T09:14:03.120Z``.
        agent: The subagent that took the step.
        call_id: The id of the tool call that it makes or answers, the same on both.
        parent: The enclosing ``call_id`` of a tool call, or the name of an agent.
        model, input_tokens, output_tokens, model_latency_ms: Of its model call;
            only the first step of a call has them.
    """

    number: int
    type: str
    tool: str | None = None
    mcp_server: str | None = None
    content: str | None = None
    input: Any = None
    output_summary: str | None = None
    latency_ms: float | None = None
    started_at: str | None = None
    agent: str | None = None
    call_id: str | None = None
    parent: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    model_latency_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """The score of a run, and the gate's decision."""

    score: float  # from 0 to 1
    margin: float | None  # the score minus the threshold, or the rank key minus the bar: 4 digits
    base_score: float  # the weighted sum, before the adjustments
    signals: Signals  # each from 0 to 1
    weights: Weights
    rules: tuple[Adjustment, ...]  # the adjustments of the weighted sum, in order
    scorer: str | None
    embedder: str | None  # the fingerprint of the model; None if novelty was not measured
    nearest_id: str | None  # the most similar earlier run, of any host; None: none, or removed
    nearest_seq: int | None
    nearest_objective: str | None
    nearest_similarity: float | None  # from -1 to 1; None: there was no run to compare with
    p_success: float | None  # when it was ranked, 1 or 0 if known; None: not estimated
    rank_key: float | None  # the key by which a share ranks it, from 0 to 1
    bar: float | None  # the rank key that a share required; None: not ranked by a share
    gate: str | None
    threshold: float | None  # the score that the gate required; None: ranked by a share
    decision: str | None
    decided_at: str | None
    took_ms: float | None  # of scoring

    @property
    def parts(self) -> ScoreParts:
        """The signals, weights and names of rules that make the score."""
        return ScoreParts(self.signals, self.weights, tuple(rule.rule for rule in self.rules))


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRecord:
    """The outbox item of a run."""

    state: str  # ``pending``, ``sending``, ``sent``, ``rejected``, ``blocked`` or ``cancelled``
    reason: str | None  # why it is blocked, rejected or cancelled
    attempts: int
    next_attempt_at: str | None
    last_error: str | None
    http_status: int | None  # the registry's last
    sent_at: str | None
    remote_id: str | None  # in the registry
    registry: str
    redactor: str  # the name, version and digest of the redaction rules
    redactions: Mapping[str, int]  # by kind


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
        id: The id of its trace: ``kp:trace:…``.
        state: ``recorded``, ``paused``, ``scored``, ``incomplete`` or ``failed``; `outbox` has
            its delivery.
        started_at: When it began: ``2026-11-01T09:14:03.120Z``.
        duration_ms: The duration; None if it was not measured.
        domain: The domain, which selects the weights of the score.
        objective, result_summary: What was asked, and a summary of the result.
        success: Whether its task was done.
        confidence: The confidence in ``success``, 0 to 1.
        success_source: Its source: ``said``, ``extracted``, ``feedback``, ``verdict`` or
            ``assumed``.
        confidence_source: That of the confidence: one of these, or ``estimated``.
        error_type: The exception that ended it.
        framework: The framework: ``python``, ``langgraph`` …
        agent_id, agent_name: The id and the name of the agent.
        model: The language model that it used.
        thread_id: The conversation that it belongs to.
        owner: The fingerprint of its owner, such as a customer; None if it has none.
        recalled: The ids of the traces that were recalled for it.
        tags: The tags that the program set.
        privacy_level: The privacy level: ``aggregated``, ``federated`` or ``private``.
        visibility: Who may see it: ``network``, ``org`` or ``private``.
        step_count: The number of steps, including those that a long run does not store.
        tool_count: The number of distinct tools.
        recovery_count: The number of errors it recovered from.
        input_tokens, output_tokens: The tokens that its models read and wrote.
        redactions: The number of secrets redacted before storage, by kind.
        reason: Why it was forwarded, withheld or not scored, in words.
        reason_code, reason_args: The code of the reason, for comparisons, and its arguments.
        scoring: The score and the gate's decision; None if there is none.
        steps: The steps, in order.
        outbox: The outbox item; None if it was never queued.
        feedback: The feedback after its end, in order.
        estimate: The estimate of its success; None if there is none.
        seq: The number of its row in the file.
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
    owner: str | None
    recalled: tuple[str, ...]
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
    reason_args: Mapping[str, Any]
    scoring: Scoring | None
    steps: tuple[StepRecord, ...] = field(repr=False)
    outbox: OutboxRecord | None
    feedback: tuple[FeedbackRecord, ...]
    estimate: RunEstimate | None
    seq: int

    @property
    def known_success(self) -> bool | None:
        """True if its task was done; None if that is only assumed."""
        return known_success(self.success, self.success_source)

    @property
    def score(self) -> float | None:
        """The score from 0 to 1; None if the run has none."""
        return None if self.scoring is None else self.scoring.score


def scoring_of(row: Mapping[str, Any]) -> Scoring:
    margin, threshold = row["margin"], row["threshold"]
    return from_row(
        Scoring,
        row,
        margin=row["score"] - threshold if margin == 0 and threshold else margin,  # rounded
        signals=Signals(**{name: row[name] for name in SIGNALS}),
        weights=Weights(**{name: row[f"{name}_weight"] for name in SIGNALS}),
        rules=tuple(Adjustment(**rule) for rule in json.loads(row["rules"])),
    )
