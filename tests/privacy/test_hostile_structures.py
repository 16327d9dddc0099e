"""Structures cost in proportion to their size, whatever their keys and values are."""

import time

import pytest

from kp_middleware.privacy import redact_jsonable

TELLING = ("name", "key", "header", "field", "label", "element", "selector", "id")
MADE = {
    "keys that are addresses": lambda n: {f"user{i}@example.org": i for i in range(n)},
    "keys that become the same": lambda n: {f"10.1.{i // 250}.{i % 250}": 1 for i in range(n)},
    "short texts": lambda n: [f"see you {i}" for i in range(n)],
    "numbers of eight digits": lambda n: [10_000_000 + 7 * i for i in range(n)],
    "all keys that tell": lambda n: [
        {key: f"a {key} {i}" for key in TELLING} | {"value": "x"} for i in range(n // 10)
    ],
    "flags": lambda n: ["--token", "x y"] * (n // 2),
    "keys that name secrets": lambda n: [{"password": {"a": "b"}}] * (n // 2),
    "JSON in texts": lambda n: ['{"a": ["b"]}'] * (n // 2),
    "JSON in texts after a word": lambda n: ['x {"password": ["b"]}'] * (n // 4),
    "secrets, and a text of what is like them": lambda n: [
        *({"password": f"{i}k" + "ab" * 20 + "!"} for i in range(min(n, 1000))),
        "ab" * 20 * n,
    ],
    "one long text of JSON": lambda n: "x " + '{"token": [' * n,
}


def seconds(value):
    """Of the processor."""
    began = time.process_time()
    redact_jsonable(value, level="aggregated")
    return time.process_time() - began


def is_linear(half, whole):
    """Whether both took about as long for each of their parts."""
    half_s, whole_s = seconds(half), seconds(whole)
    return whole_s < min(2, 3.2 * half_s + 0.02)


@pytest.mark.parametrize("make", MADE.values(), ids=MADE.keys())
def test_twice_as_much_takes_about_twice_as_long(make):
    redact_jsonable(make(20), level="aggregated")

    half, whole = make(1500), make(3000)

    assert any(is_linear(half, whole) for _ in range(3))
