"""What a registry has stored, and how it finds it."""

import time
from collections import Counter
from urllib.parse import parse_qsl

from kp_middleware.instants import instant
from kp_middleware.traces import ReasoningTrace


class Shelf:
    """Documents by id; the same id again overwrites.

    Attributes:
        times_stored: How often, by id.
    """

    def __init__(self) -> None:
        self.times_stored: Counter[str] = Counter()
        self._stored: dict[str, tuple[ReasoningTrace, str]] = {}

    def traces(self) -> dict[str, ReasoningTrace]:
        """What is stored, by id."""
        return {trace_id: trace for trace_id, (trace, _) in self._stored.items()}

    def put(self, trace: ReasoningTrace) -> dict[str, object]:
        """Store one, and say what a 201 says."""
        self.times_stored[trace.id] += 1
        self._stored[trace.id] = trace, instant(time.time())
        entry = _entry(*self._stored[trace.id])
        return {"data": entry, "quality_score": trace.metadata.quality_score}

    def of_agent(self, agent_id: str) -> list[dict[str, object]]:
        """Whole documents, as an export has them."""
        return [
            trace.model_dump(mode="json")
            for trace, _ in self._stored.values()
            if trace.metadata.agent_id == agent_id
        ]

    def remove(self, trace_id: str) -> None:
        """Store it no longer."""
        del self._stored[trace_id]

    def clear(self) -> None:
        """Store nothing any more."""
        self._stored.clear()

    def search(self, query: str) -> dict[str, object]:
        """The page for ``q=&types=&domain=&min_quality=&limit=20&offset=0``, each optional."""
        asked = dict(parse_qsl(query))
        limit, offset = int(asked.get("limit", 20)), int(asked.get("offset", 0))
        found = [entry for entry in self._stored.values() if _is_meant(entry[0], asked)]
        page = [_entry(trace, at) for trace, at in found[offset : offset + limit]]
        return {"data": page, "total": len(found), "offset": offset, "limit": limit}


def _is_meant(trace: ReasoningTrace, asked: dict[str, str]) -> bool:
    metadata = trace.metadata
    return (
        asked.get("q", "").casefold() in trace.model_dump_json().casefold()
        and trace.kind in asked.get("types", trace.kind).split(",")
        and asked.get("domain", metadata.task_domain) == metadata.task_domain
        and metadata.quality_score >= float(asked.get("min_quality", 0))
    )


def _entry(trace: ReasoningTrace, stored_at: str) -> dict[str, object]:
    return {
        "id": trace.id,
        "unit": trace.model_dump(mode="json"),
        "visibility": trace.metadata.visibility,
        "created_at": stored_at,
        "updated_at": stored_at,
    }
