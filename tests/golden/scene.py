"""One file of runs that are the same each time: what the doors show of it is written down."""

import html
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from recorded_conversations import agent_of, answered_turns, on_one_thread
from ways_to_run import invoke

from kp_langchain import KPCallbackHandler
from kp_langchain.demo import run_tasks
from kp_middleware import KnowledgePulse
from kp_middleware.testing import LocalRegistry, StandInEmbedder

_IDS: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHORT: Final = re.compile(r"(?<![\w-])[0-9a-f]{8}(?![\w-])")
_MASKS: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z| UTC)?"), "<time>"),
    (re.compile(r"\d{4}-\d\d-\d\d"), "<day>"),
    (re.compile(r"\b\d{1,2} [A-Z][a-z]{2} 20\d\d\b"), "<day>"),
    (re.compile(r"^\d{1,2} [A-Z][a-z]{2}$", re.MULTILINE), "<day>"),  # beneath a picture
    (
        re.compile(r'("\w*(?:_ms|_s|latency|size|bytes|days?)": ?)[\d.]+'),
        r"\1<n>",
    ),
    (re.compile(r"<?(?<![\w.])[\d.,]+[ \xa0]?(?:ms|s|bytes|kB|MB|KiB|MiB)\b"), "<amount>"),
    (re.compile(r"(?:just now|\d+ (?:second|minute)s? ago|in \d+ (?:second|minute)s?)"), "<ago>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "<registry>"),
    (re.compile(r"sha256:[0-9a-f]+"), "<digest>"),
    (re.compile(r"(kp-redactor/1\+)[0-9a-f]+"), r"\1<rules>"),
    (re.compile(r"(\d\.\d{6})\d+"), r"\1"),
)


def settings_of(db: Path) -> dict[str, Any]:
    """Scored in the caller's thread, by an embedder that is the same everywhere."""
    return {"db": db, "embedder": StandInEmbedder(), "sync": True, "threshold": 0.7}


def delivery_to(registry: LocalRegistry) -> dict[str, Any]:
    """Return the settings for sending."""
    return {"registry_url": registry.url, "api_key": registry.api_key, "agent_id": "golden"}


def record_demo(kp: KnowledgePulse) -> None:
    """The tasks of the demo."""
    run_tasks(kp)


def record_conversation(kp: KnowledgePulse, recording: dict[str, Any]) -> None:
    """Hold a recorded conversation again, turn by turn, on a thread of its own."""
    handler = KPCallbackHandler(kp, domain="customer_service", confidence=lambda _output: 0.8)
    config = on_one_thread(handler)
    config["configurable"]["thread_id"] = f"{recording['task_id']}-{recording['trial']}"
    talking = agent_of(recording)
    for turn in answered_turns(recording):
        invoke(talking, {"messages": [("human", turn)]}, config)


class Masks:
    """Puts numbers in place of ids, and a word in place of what differs each time."""

    def __init__(self, db: Path) -> None:
        self._db = str(db)
        self._numbers: dict[str, str] = {}
        with closing(sqlite3.connect(db)) as connection:
            ids = connection.execute("SELECT id FROM traces ORDER BY seq").fetchall()
        for number, (id,) in enumerate(ids, 1):
            bare = id.removeprefix("kp:trace:")
            self._numbers |= {bare: f"<run {number}>", bare[:8]: f"<run {number}>"}

    def mask(self, text: str) -> str:
        """The text as it is each time."""
        text = _IDS.sub(lambda found: self._numbers.get(found[0], "<id>"), text)
        text = _SHORT.sub(lambda found: self._numbers.get(found[0], found[0]), text)
        text = text.replace(self._db, "<db>").replace(str(Path(self._db).parent), "<folder>")
        for pattern, word in _MASKS:
            text = pattern.sub(word, text)
        return text


def rows_of(db: Path) -> str:
    """Every row of every table but vectors, a line each."""
    return "\n".join(_rows(db))


def _rows(db: Path) -> Iterator[str]:
    with closing(sqlite3.connect(db)) as connection:
        connection.row_factory = sqlite3.Row
        for table in ("traces", "steps", "outbox", "feedback"):
            yield f"## {table}"
            for row in connection.execute(f"SELECT * FROM {table}"):
                yield json.dumps(_stable_fields(dict(row)), ensure_ascii=False)


def _stable_fields(row: dict[str, Any]) -> dict[str, Any]:
    """Without what says nothing or differs each time."""
    aside = {
        "x",
        "y",
        "scored_ms",
        "latency_ms",
        "model_latency_ms",
        "duration_ms",
        "idempotency_key",
        "scorer",
        "body",
    }
    return {
        name: value
        for name, value in row.items()
        if value is not None and name not in aside and not name.startswith("claimed")
    }


def posted(registry: LocalRegistry) -> str:
    """The bodies that arrived, in order."""
    sent = registry.documents.values()
    bodies = [_without_latencies(body.model_dump(mode="json", by_alias=True)) for body in sent]
    return "\n".join(json.dumps(body, ensure_ascii=False, indent=1) for body in bodies)


def _without_latencies(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_latencies(v) for k, v in value.items() if k != "latency_ms"}
    return [*map(_without_latencies, value)] if isinstance(value, list) else value


def page_text(page: str) -> str:
    """The words of a page, a line for each element that has some."""
    page = re.sub(r"(?s)<(style|script|head)\b.*?</\1>", "", page)
    words = html.unescape(re.sub(r"<[^>]+>", "\n", page))
    lines = (re.sub(r"\s+", " ", line).strip() for line in words.split("\n"))
    return "\n".join(filter(None, lines))
