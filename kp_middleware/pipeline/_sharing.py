"""Choose the runs that ask the shared log before they are decided on, and prepare their rows."""

import json
from importlib.metadata import version
from typing import Final, NamedTuple, Self

from kp_middleware.core.endings import Ending
from kp_middleware.core.evaluation import Evaluation, Run, Verdict
from kp_middleware.core.gates import DailyLimit, Gate, Threshold
from kp_middleware.errors import RedactionError
from kp_middleware.outbox_items import idempotency_key
from kp_middleware.pipeline._dispatch import prepare_payload
from kp_middleware.privacy import Policy
from kp_middleware.settings import Settings
from kp_middleware.sharing import SharedItem, SharedRun
from kp_middleware.storage import Asking, SharedRuns, SqliteStore, Store
from kp_middleware.traces import ReasoningTrace

VERSION: Final = version("kp-middleware")


class Sharing:
    """The scoring thread's part: it writes to the file, and never asks the network.

    What a fixed threshold withholds here it would withhold with all that other hosts know: novelty
    only falls. So only what would clear asks, and all runs where a share or another gate decides.
    """

    def __init__(self, runs: SharedRuns, gate: Gate) -> None:
        self._runs = runs
        fixed = isinstance(gate, Threshold) or (isinstance(gate, DailyLimit) and not gate.last)
        self._asks_always = not fixed

    @classmethod
    def of(cls, store: Store, settings: Settings, gate: Gate) -> Self | None:
        """Return one where several hosts share a log, else None; a user's own store raises."""
        if settings.shared is None:
            return None
        if not isinstance(store, SqliteStore):
            raise TypeError("shared reads the file: a store of your own has none")
        return cls(store.shared_runs(), gate)

    def asks(self, trace: ReasoningTrace, verdict: Verdict) -> bool:
        """Return whether a run is decided on where all hosts are known."""
        if trace.metadata.visibility == "private":
            return False
        return self._asks_always or verdict.decision == "forward"

    def ask(self, seq: int, trace_id: str, run: Run, took_ms: float) -> None:
        """Let a run ask, with what was measured; in the transaction that has compared it."""
        near = run.nearest
        self._runs.ask(
            Asking(
                seq,
                trace_id,
                0,
                None if near is None else near.id,
                None if near is None else near.similarity,
                run.embedder,
                run.p_success,
                took_ms,
            )
        )

    def mark(self, seq: int, trace: ReasoningTrace) -> None:
        """Mark a run that was decided on here: it is shipped, unless it is private."""
        self._runs.mark(seq, stays=trace.metadata.visibility == "private")


class Candidate(NamedTuple):
    """A run that asks, read and redacted before the log is locked.

    ``body`` is what would leave, None where it is not certainly clean: ``why_not`` says why.
    ``delivery`` is a key of `DELIVERY`; ``run`` lacks the nearest.
    """

    asking: Asking
    trace: ReasoningTrace
    ending: Ending
    body: bytes | None
    redactions: str
    why_not: str
    facts: str
    delivery: str | None
    run: Run


class Documents:
    """Redacts runs as they would leave, and makes rows of the log of them."""

    def __init__(self, settings: Settings, policy: Policy, pod: str) -> None:
        self._settings = settings
        self._policy = policy
        self._pod = pod

    def redacted(self, trace: ReasoningTrace, score: float) -> tuple[bytes, str] | str:
        """Return what would leave with the counts of its placeholders, or why nothing would."""
        try:
            body, redactions = prepare_payload(
                trace, score=score, agent_id=self._settings.agent_id, policy=self._policy
            )
        except RedactionError as error:
            return str(error)
        return body, json.dumps(dict(redactions))

    def shared(self, document: str | None, body: bytes | None) -> tuple[str | None, str | None]:
        """Return the document as it is shared, and the rules that it was redacted by."""
        match self._settings.shared_documents:
            case "none":
                return None, None
            case "full":
                return document, "full"
            case "redacted":
                return (None, None) if body is None else (body.decode(), self._policy.redactor)

    @property
    def are_redacted(self) -> bool:
        """True if a run that stays is redacted for the log."""
        return self._settings.shared_documents == "redacted"

    def row(self, candidate: Candidate, evaluation: Evaluation) -> SharedRun:
        """Return a run that was decided on as a row of the log."""
        score, verdict = evaluation
        metadata, near = candidate.trace.metadata, score.nearest
        body = candidate.body and with_score(candidate.body, score.value)
        document, redactor = self.shared(candidate.trace.model_dump_json(), body)
        return SharedRun(
            id=candidate.trace.id,
            pod=self._pod,
            domain=metadata.task_domain,
            started_at=metadata.created_at,
            success=metadata.success,
            success_source=candidate.ending.success_source,
            confidence=candidate.trace.outcome.confidence,
            signals=tuple(score.signals),
            weights=tuple(score.weights),
            rules=json.dumps([one._asdict() for one in score.adjustments]),
            score=score.value,
            threshold=verdict.threshold,
            gate=verdict.gate,
            decision=verdict.decision,
            reason_code=verdict.reason.code,
            reason_args=json.dumps(dict(verdict.reason.args), ensure_ascii=False),
            rank_key=verdict.key,
            bar=verdict.bar,
            credit=verdict.credit,
            chosen=verdict.chosen,
            scorer=f"kp-middleware {VERSION}",
            embedder=score.embedder,
            nearest=near and near.id,
            nearest_similarity=near and near.similarity,
            vector=candidate.asking.vector,
            facts=candidate.facts,
            body=document,
            redactor=redactor,
        )

    def item(self, candidate: Candidate, score: float) -> SharedItem | None:
        """Return the body that goes to the registry; None if none may."""
        if candidate.body is None:
            return None
        body = with_score(candidate.body, score)
        key = idempotency_key(body, agent_id=self._settings.agent_id)
        return SharedItem(
            candidate.trace.id, body, self._policy.redactor, candidate.redactions, key
        )


def with_score(body: bytes, score: float) -> bytes:
    """Return a prepared body with another score, which needs no redaction."""
    document = json.loads(body)
    if document["metadata"]["quality_score"] == score:
        return body
    document["metadata"]["quality_score"] = score
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
