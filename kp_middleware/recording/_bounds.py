"""Bounded texts, bounded JSON copies of values, and a bounded log of steps."""

import json
import math
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import accumulate, chain, islice, takewhile
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from kp_middleware.core.formula import Shape
from kp_middleware.recording._context import Place
from kp_middleware.traces import Limits, Step, StepType

NAME_BYTES: Final = 256
_REPLACED = "\N{REPLACEMENT CHARACTER}"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_CUT: Final = re.compile(r'… \[cut: \d+ |"…": ?"cut: \d+ |"<[\w.]+: left out>"')


def bounded_text(text: str, limit_bytes: int) -> str:
    """Return the text, truncated to a size, without characters that registry databases reject.

    A note at the cut gives the original length. U+0000 and lone surrogates become U+FFFD.

    >>> bounded_text("a long story", 6)
    'a long… [cut: 12 characters in all]'
    """
    if len(text) <= limit_bytes and text.isascii() and "\0" not in text:
        return text  # nearly always
    truncated = text[:limit_bytes]
    if "\0" in truncated:
        truncated = truncated.replace("\0", _REPLACED)
    if not truncated.isascii():
        truncated = _LONE_SURROGATE.sub(_REPLACED, truncated)
        truncated = truncated.encode()[:limit_bytes].decode("utf-8", "ignore")
    if len(truncated) < len(text):
        return f"{truncated}… [cut: {len(text)} characters in all]"
    return truncated


def bounded_name(name: object) -> str:
    """Return the name of a tool, an agent or a class, of any type, as bounded text."""
    return bounded_text(str(name), NAME_BYTES)


def holds_cuts(document: str) -> bool:
    """Return True if a JSON document has a cut marked by `bounded_text` or `jsonable`."""
    may_hold = "cut: " in document or "left out>" in document  # fast: most documents have neither
    return may_hold and _CUT.search(document) is not None


def size_bytes(text: str) -> int:
    """Return the size in UTF-8 of a text that `bounded_text` returned."""
    return len(text) if text.isascii() else len(text.encode())


_MAX_ITEMS: Final = 1000
_VALUE_BYTES: Final = 2  # or a list of empty lists would be unbounded
_MAX_EXACT_INT: Final = 2**53  # beyond it JSON readers round


def jsonable(value: object, limit_bytes: int) -> Any:
    """Return a copy of the value in JSON's own types, of at most about ``limit_bytes``.

    Objects without a JSON type become ``<module.Class>``, NaN and infinity None, and integers
    beyond 2**53 text; every cut is marked in place.

    >>> jsonable({"when": float("nan"), 1: (2, {3})}, 1000)
    {'when': None, '1': [2, [3]]}
    """
    return BoundedCopy(limit_bytes).of(value)


def bounded_mapping(value: object, limit_bytes: int) -> tuple[dict[str, Any], int]:
    """Return the copy of a mapping, and its size; anything else is put under ``value``."""
    if type(value) is dict and len(value) <= _MAX_ITEMS:
        texts, size = value.copy(), _VALUE_BYTES
        for key, text in texts.items():
            if type(key) is not str or type(text) is not str:
                break
            size += len(key) + len(text) + _VALUE_BYTES
        else:  # as most arguments are
            joined = "".join(texts) + "".join(texts.values())
            if size <= limit_bytes and joined.isascii() and "\0" not in joined:
                return texts, size
    copy = BoundedCopy(limit_bytes)
    copied = copy.of(value)
    size = limit_bytes - copy.left_bytes
    return copied if type(copied) is dict else {"value": copied}, size


class BoundedCopy:
    """A bounded copy of a value in progress; ``left_bytes`` is the rest of its limit."""

    def __init__(self, limit_bytes: int) -> None:
        self.left_bytes = limit_bytes

    def of(self, value: object, depth: int = 0) -> Any:
        """Return the copy of a value inside ``depth`` containers."""
        self.left_bytes -= _VALUE_BYTES
        kind = type(value)
        if value is None or kind is bool:
            return value
        try:
            if kind is str:
                return self._text(value)  # type: ignore[arg-type]
            if kind is float:
                self.left_bytes -= 8
                return value if math.isfinite(value) else None  # type: ignore[arg-type]
            if kind is int and -_MAX_EXACT_INT <= value <= _MAX_EXACT_INT:  # type: ignore[operator]
                self.left_bytes -= 8
                return value
            if depth >= 16 or self.left_bytes <= 0:
                return f"<{_class_name(value)}: left out>"
            if isinstance(value, (dict, Mapping)):  # most are dicts, which is fast to check
                return self._mapping(value.items(), len(value), depth)
            if isinstance(value, (list, tuple, Set)):
                return self._list(value, len(value), depth)
            return self._other(value, depth)
        except Exception:  # noqa: BLE001 - reading a user's object may raise anything
            return f"<unreadable {_class_name(value)}>"

    def _text(self, text: str) -> str:
        if len(text) <= self.left_bytes and text.isascii() and "\0" not in text:  # nearly always
            self.left_bytes -= len(text)
            return text
        kept = bounded_text(text, max(self.left_bytes, 0))
        self.left_bytes -= size_bytes(kept)
        return kept

    def _mapping(self, items: Iterable[tuple[Any, Any]], size: int, depth: int) -> dict[str, Any]:
        copied: dict[str, Any] = {}
        for key, value in [*islice(items, _MAX_ITEMS)]:  # copied: another thread may change it
            if self.left_bytes <= 0:
                break
            # before the value, which may use up the limit
            name = self._text(key) if type(key) is str else self.of(key, depth + 1)
            if type(name) is not str:
                name = json.dumps(name, ensure_ascii=False)
            if type(value) is str and value.isascii() and "\0" not in value:  # as most are
                left = self.left_bytes = self.left_bytes - _VALUE_BYTES
                if len(value) <= left:
                    self.left_bytes, copied[name] = left - len(value), value
                else:
                    copied[name] = self._text(value)
            else:
                copied[name] = self.of(value, depth + 1)
        if len(copied) < size:
            copied["…"] = f"cut: {size} items in all"
        return copied

    def _list(self, items: Iterable[Any], size: int, depth: int) -> list[Any]:
        copied: list[Any] = []
        for value in [*islice(items, _MAX_ITEMS)]:
            if self.left_bytes <= 0:
                break
            copied.append(self.of(value, depth + 1))
        if len(copied) < size:
            copied.append(f"… [cut: {size} items in all]")
        return copied

    def _other(self, value: object, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(str.__str__(value))
        if isinstance(value, Enum):
            return self.of(value.value, depth + 1)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return f"<{len(value)} bytes>"
        if isinstance(value, (date, time, timedelta, Decimal, UUID, PurePath)):
            return self._text(str(value))
        if _class_name(value) in {"numpy.bool", "numpy.bool_"}:
            return bool(value)
        if isinstance(value, Integral):
            whole = int(value)
            if -_MAX_EXACT_INT <= whole <= _MAX_EXACT_INT:
                return self.of(whole)
            return self._text(str(whole) if whole.bit_length() < 4096 else "<huge integer>")
        if isinstance(value, Real):  # numpy's scalars, fractions
            return self.of(float(value))
        shown = fields_of(value)
        if shown is None:
            return self._text(f"<{_class_name(value)}>")
        return self._mapping(shown.items(), len(shown), depth)


def _class_name(value: object) -> str:
    """Return the class name of any object, without calling its metaclass, which may raise."""
    return bounded_name(type.__repr__(type(value)).removeprefix("<class '").removesuffix("'>"))


def fields_of(value: object) -> dict[str, Any] | None:
    """Return the fields that the ``repr`` of a dataclass or pydantic model shows, else None."""
    kind = type(value)
    if is_dataclass(kind):
        names = [field.name for field in fields(kind) if field.repr]
    elif isinstance(known := getattr(kind, "model_fields", None), dict):
        names = [name for name, field in known.items() if getattr(field, "repr", True)]
    else:
        return None
    return {name: getattr(value, name, None) for name in names}


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, its causes, and the errors of groups among them, at most ten in all."""
    found: list[BaseException | None] = [error]
    for cause in islice(found, 10):
        if cause is not None:
            yield cause
            found += cause.exceptions if isinstance(cause, BaseExceptionGroup) else ()
            found.append(cause.__cause__ if cause.__suppress_context__ else cause.__context__)


def error_text(error: BaseException) -> str:
    """Return ``ValueError: message``, or the type alone if ``str(error)`` raises or is empty."""
    try:
        return f"{type(error).__name__}: {error}".removesuffix(": ")
    except Exception:  # noqa: BLE001 - a user's __str__ may raise anything
        return type(error).__name__


class ModelCall(NamedTuple):
    """The model call behind a step; unknown values are None."""

    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    latency_ms: float | None = None


StepFields: TypeAlias = dict[str, Any]
"""A step of the document without its ``step_id``, and the keys of `STEP_METADATA`; no null."""

STEP_METADATA: Final = ("at", "place", "call_id", "model_call")
"""The keys of a step that are not in the document."""

STEP_OVERHEAD_BYTES: Final = 64
"""The approximate size of a step in a document without its texts and its input."""

BEGINNING: Final[StepFields] = {}
"""A sentinel for the step before the first."""

_MARKER: Final = re.compile(r"\[\d+ of \d+ steps left out here\]")
_Entry: TypeAlias = tuple[StepFields, int]  # a step and its size in bytes


class LateNote(NamedTuple):
    """A step that an adapter reports late, to be inserted after an earlier one."""

    kind: StepType
    text: str
    after: StepFields
    tool: str | None = None
    place: Place | None = None
    call_id: str | None = None
    at: float | None = None  # by the recorder's clock


class StepLog:
    """A log of the first and the last steps of a run, with true counts of all.

    Steps beyond the limits are left out after the first half, where a marker counts toward the
    limit. The last step is always retained.
    """

    def __init__(self, limits: Limits) -> None:
        self._most_steps, self._most_bytes = limits.steps, limits.trace_bytes
        self._head: list[_Entry] = []  # empty until steps are left out after it
        self._tail: deque[_Entry] = deque()
        self._is_cut = False
        self._left_out: Counter[StepType] = Counter()
        self._left_out_tools: set[str] = set()
        self.kept = 0  # steps
        self.size_bytes = 0  # about their size in the document

    @property
    def count(self) -> int:
        return self.kept + self._left_out.total()

    def append(self, step: StepFields, size_bytes: int) -> None:
        """Append a step; ``size_bytes`` is that of its texts and its input."""
        size_bytes += STEP_OVERHEAD_BYTES
        self._tail.append((step, size_bytes))
        self.kept += 1
        self.size_bytes += size_bytes
        if self.kept > self._most_steps or self.size_bytes > self._most_bytes:
            self._shorten()

    def leave_out(self, count: int) -> None:
        """Add a number of steps that were left out earlier."""
        if count > 0:
            self._cut()
            self._left_out["observation"] += count
            self._shorten()

    def insert(self, late: Iterable[tuple[StepFields, int, StepFields]]) -> None:
        """Insert late steps, with their sizes, each after an earlier step or `BEGINNING`.

        A step whose earlier step is left out is left out, too.
        """
        following: dict[int, list[_Entry]] = defaultdict(list)
        for step, size_bytes, after in late:
            following[id(after)].append((step, size_bytes + STEP_OVERHEAD_BYTES))
        head, tail = following.pop(id(BEGINNING), []), list[_Entry]()
        for before, entries in ((self._head, head), (self._tail, tail)):
            for entry in before:
                entries += [entry, *following.pop(id(entry[0]), ())]
        lost = chain.from_iterable(following.values())
        if self._is_cut:
            half = self._half(head)
            for step, _ in (*head[half:], *lost):
                self._leave_out(step)
            del head[half:]
        else:
            head, tail = [], [*head, *tail, *lost]
        self._head, self._tail = head, deque(tail)
        self.kept = len(head) + len(tail)
        self.size_bytes = sum(size for _, size in (*head, *tail))
        self._shorten()

    def mark_fatal(self, step: StepFields) -> None:
        """Turn a recovery into an observation, because its error ended the run."""
        if all(kept is not step for kept in self._kept()):
            self._left_out[step["type"]] -= 1
            self._left_out["observation"] += 1
        step["type"] = "observation"

    def steps(self) -> list[StepFields]:
        """Return the retained steps, with a marker for those left out."""
        steps = self._kept()
        if left_out := self._left_out.total():
            words = f"[{left_out} of {self.count} steps left out here]"
            steps.insert(len(self._head), {"type": "observation", "output_summary": words})
        return steps

    def shape(self) -> Shape:
        """Return the counts of all steps, including those left out."""
        types = self._left_out + Counter(step["type"] for step in self._kept())
        return Shape(types.total(), frozenset(types), len(self.tools()), types["error_recovery"])

    def tools(self) -> set[str]:
        """Return the names of all tools, including those of steps left out."""
        return {*self._left_out_tools, *(s["tool"]["name"] for s in self._kept() if "tool" in s)}

    def _kept(self) -> list[StepFields]:
        return [step for step, _ in (*self._head, *self._tail)]

    def _shorten(self) -> None:
        while len(self._tail) > 1 and (
            self.kept > self._most_steps or self.size_bytes > self._most_bytes
        ):
            if not self._is_cut:
                self._cut()
                continue
            step, size_bytes = self._tail.popleft()
            self.kept -= 1
            self.size_bytes -= size_bytes
            self._leave_out(step)

    def _cut(self) -> None:
        """Start to leave out steps after the first half; the marker counts toward the limit."""
        if not self._is_cut:
            self._is_cut = True
            self._most_steps -= 1
            self._head = [self._tail.popleft() for _ in range(self._half(self._tail))]

    def _half(self, entries: Iterable[_Entry]) -> int:
        sizes = accumulate(size for _, size in entries)
        fitting = sum(1 for _ in takewhile(lambda size: size <= self._most_bytes // 2, sizes))
        return min(fitting, self._most_steps // 2)

    def _leave_out(self, step: StepFields) -> None:
        self._left_out[step["type"]] += 1
        if "tool" in step:
            self._left_out_tools.add(step["tool"]["name"])


def is_marker(step: Step) -> bool:
    is_bare = step.type == "observation" and step.tool is None and step.content is None
    return is_bare and _MARKER.fullmatch(step.output_summary or "") is not None
