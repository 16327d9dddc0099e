"""A file of traces as large as somebody's after a busy year, made with plain SQL on our schema."""

import json
import random
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import numpy as np

from kp_middleware.database import connect, transaction
from kp_middleware.traces import CONTEXT

STEPS: Final = 8
DOMAINS: Final = ("general", "code", "finance", "medical", "customer_service", "law")
TOOLS: Final = tuple(
    f"{verb}_{noun}" for verb in ("read", "find", "write") for noun in "abcdefghij"
)
MODELS: Final = ("small-1", "large-1", "large-2", None)
WORDS: Final = (
    "find",
    "fix",
    "compare",
    "summarise",
    "test",
    "vendor",
    "worker",
    "memory",
    "module",
)
EMBEDDER: Final = "all-MiniLM-L6-v2:f91ae3c0b697:256:task-first:fp32"
FIRST: Final = datetime(2025, 1, 1, tzinfo=UTC)
SIGNALS: Final = ("complexity", "novelty", "tool_diversity", "outcome_confidence")
WEIGHTS: Final = (0.2, 0.3, 0.3, 0.2)

TRACE: Final = (
    "seq", "id", "state", "started_at", "duration_ms", "domain", "objective", "result_summary",
    "success", "confidence", "error_type", "framework", "agent_id", "agent_name", "model",
    "thread_id", "tags", "privacy_level", "visibility", "step_count", "tool_count",
    "recovery_count", "input_tokens", "output_tokens", "complexity", "novelty", "tool_diversity",
    "outcome_confidence", "complexity_weight", "novelty_weight", "tool_diversity_weight",
    "outcome_confidence_weight", "rules", "score", "rank_key", "threshold", "gate", "decision",
    "reason_code", "reason_args", "scorer", "embedder", "nearest_seq", "nearest_similarity",
    "scored_ms", "success_source",
)  # fmt: skip
STEP: Final = (
    "trace_seq", "step_id", "type", "tool", "content", "input", "output_summary", "latency_ms",
)  # fmt: skip
OUTBOX: Final = (
    "trace_seq", "state", "reason", "attempts", "sent_at", "remote_id", "idempotency_key",
    "registry", "redactor", "redactions", "body",
)  # fmt: skip


def build(path: Path, traces: int) -> None:
    """Fill a new file with so many traces of eight steps each."""
    rng = random.Random(7)
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        for start in range(1, traces + 1, 5_000):
            rows = [
                _trace(seq, traces, rng) for seq in range(start, min(start + 5_000, traces + 1))
            ]
            with transaction(connection):
                _insert(connection, "traces", TRACE, rows)
                _insert(
                    connection, "steps", STEP, [one for row in rows for one in _steps(row, rng)]
                )
                _insert(connection, "outbox", OUTBOX, [*_outbox(rows)])
                _insert(
                    connection, "documents", ("trace_seq", "body"), [_document(r) for r in rows]
                )
                _add_vectors(connection, rows, start)
                _add_asked(connection, rows, rng)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _insert(connection: Any, table: str, columns: tuple[str, ...], rows: list[Any]) -> None:
    holes = ", ".join(f":{name}" for name in columns)
    names = ", ".join(columns)
    connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({holes})", rows)


def _trace(seq: int, traces: int, rng: random.Random) -> dict[str, Any]:
    failed, confidence = rng.random() < 0.1, rng.random() ** 0.3
    values = [
        rng.random() ** 0.3,
        max(0.0, 1 - seq / traces / 2 - rng.random() / 3),
        rng.random() ** 0.3,
        confidence * (0.3 if failed else 1),
    ]
    rules = [{"rule": "single_tool", "delta": -0.1}] if seq % 5 == 0 else []
    parts = [value * weight for value, weight in zip(values, WEIGHTS, strict=True)]
    score = max(0.0, sum(parts) + sum(rule["delta"] for rule in rules))
    started_at = FIRST + timedelta(seconds=seq * 300)
    return dict.fromkeys(TRACE) | {
        "seq": seq,
        "id": f"kp:trace:{UUID(int=rng.getrandbits(128), version=4)}",
        "state": "scored",
        "started_at": started_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "duration_ms": int(rng.expovariate(1 / 5_000)),
        "domain": rng.choice(DOMAINS),
        "objective": f"{rng.choice(WORDS)} the {rng.choice(WORDS)} of {rng.choice(WORDS)} {seq}",
        "result_summary": f"{rng.choice(WORDS)} {rng.choice(WORDS)} done " * 10,
        "success": not failed,
        "confidence": confidence,
        "error_type": "TimeoutError" if failed else None,
        "framework": "langchain",
        "agent_name": f"agent-{rng.randrange(9)}",
        "model": rng.choice(MODELS),
        "thread_id": f"thread-{seq // 5}",
        "tags": '["nightly"]' if seq % 9 == 0 else None,
        "privacy_level": "aggregated",
        "visibility": "network",
        "step_count": STEPS,
        "tool_count": 3,
        "recovery_count": int(seq % 7 == 0),
        "input_tokens": rng.randrange(20_000),
        "output_tokens": rng.randrange(2_000),
        **dict(zip(SIGNALS, values, strict=True)),
        **dict(zip((f"{name}_weight" for name in SIGNALS), WEIGHTS, strict=True)),
        "rules": json.dumps(rules),
        "score": score,
        "rank_key": score,
        "threshold": 0.75,
        "gate": "threshold",
        "decision": "forward" if score >= 0.75 else "withhold",
        "reason_code": "above_threshold" if score >= 0.75 else "below_threshold",
        "reason_args": json.dumps({"score": score, "threshold": 0.75}),
        "scorer": "kp/1",
        "embedder": EMBEDDER,
        "nearest_seq": seq - rng.randint(1, min(seq - 1, 1000)) if seq > 1 else None,
        "nearest_similarity": 1 - values[1],
        "scored_ms": 8.0,
        "success_source": "feedback" if seq % 2 else "assumed",
    }


def _steps(trace: dict[str, Any], rng: random.Random) -> Iterator[dict[str, Any]]:
    for step_id in range(STEPS):
        tool = rng.choice(TOOLS) if step_id % 3 else None
        kind = ("thought", "tool_call", "observation")[step_id % 3]
        if step_id == 5 and trace["recovery_count"]:
            kind = "error_recovery"
        yield dict.fromkeys(STEP) | {
            "trace_seq": trace["seq"],
            "step_id": step_id,
            "type": kind,
            "tool": tool,
            "content": None if tool else "I look for what the last step did not say. " * 3,
            "input": '{"query": "what was not said"}' if kind == "tool_call" else None,
            "output_summary": "a page of results " * 8 if kind == "observation" else None,
            "latency_ms": rng.expovariate(1 / 200) if kind == "observation" else None,
        }


def _outbox(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        if row["decision"] == "forward":
            state = (
                ("blocked", "rejected", "pending")[row["seq"] % 3]
                if row["seq"] % 20 == 0
                else "sent"
            )
            yield dict.fromkeys(OUTBOX) | {
                "trace_seq": row["seq"],
                "state": state,
                "reason": "residual_secret at steps[2].content" if state == "blocked" else None,
                "attempts": 1,
                "sent_at": row["started_at"] if state == "sent" else None,
                "remote_id": row["id"] if state == "sent" else None,
                "idempotency_key": row["id"],
                "registry": "https://registry.example",
                "redactor": "kp-redactor/1",
                "redactions": '{"email": 2}',
                "body": _document(row)[1],
            }


def _document(row: dict[str, Any]) -> tuple[int, str]:
    content = "I look for what the last step did not say."
    body = {
        "@context": CONTEXT,
        "@type": "ReasoningTrace",
        "id": row["id"],
        "metadata": {
            "created_at": row["started_at"],
            "task_domain": row["domain"],
            "success": row["success"],
            "quality_score": row["score"],
            "visibility": row["visibility"],
            "privacy_level": row["privacy_level"],
        },
        "task": {"objective": row["objective"]},
        "steps": [{"step_id": n, "type": "thought", "content": content} for n in range(STEPS)],
        "outcome": {"result_summary": row["result_summary"], "confidence": row["confidence"]},
    }
    return row["seq"], json.dumps(body)


def _add_vectors(connection: Any, rows: list[dict[str, Any]], seed: int) -> None:
    vectors = np.random.default_rng(seed).standard_normal((len(rows), 384), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    connection.executemany(
        "INSERT INTO vectors (trace_seq, key, embedder, added_at_ms, vector)"
        " VALUES (?, ?, ?, ?, ?)",
        [
            (row["seq"], row["id"], EMBEDDER, row["seq"], vector.tobytes())
            for row, vector in zip(rows, vectors, strict=True)
        ],
    )


def _add_asked(connection: Any, rows: list[dict[str, Any]], rng: random.Random) -> None:
    """Add what people said: forty words more, common and rare as those of a language."""
    connection.executemany(
        "INSERT INTO asked (trace_seq, embedder, vector, said) VALUES (?, ?, ?, ?)",
        (
            (row["seq"], EMBEDDER, rng.randbytes(384), f"{row['objective']} {words_like(rng, 40)}")
            for row in rows
        ),
    )


def words_like(rng: random.Random, count: int) -> str:
    """Return words of a vocabulary of 20,000 by Zipf's law."""
    return " ".join(f"w{int(20_000 ** rng.random())}" for _ in range(count))
