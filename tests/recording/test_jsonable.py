"""Any value becomes bounded JSON; nothing is raised and nothing is changed."""

import json
import threading
from collections import OrderedDict, UserDict, deque, namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from pathlib import PurePosixPath
from types import MappingProxyType
from uuid import UUID

import numpy as np
import pytest
from hostile_objects import HOSTILE, AlwaysRaises
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr

from kp_middleware.recording import jsonable

ROOM = 64 * 1024
ANY_TEXT = st.text(st.characters(exclude_categories=()))
ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | ANY_TEXT
    | st.binary()
    | st.dates()
    | st.decimals()
    | st.fractions()
    | st.complex_numbers()
    | st.builds(object)
)
KEYS = ANY_TEXT | st.integers() | st.floats() | st.booleans() | st.none() | st.tuples(ANY_TEXT)
ANYTHING = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner) | st.builds(deque)
    ),
    max_leaves=30,
)


class Colour(Enum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


class Word(StrEnum):
    YES = "yes"


class City(BaseModel):
    name: str
    secret: str = Field(default="hidden", repr=False)


@dataclass
class Flight:
    to: City
    password: str = field(default="hidden", repr=False)


Pair = namedtuple("Pair", "left right")


def without_address(value):
    """Return a case's name, the same in every process."""
    return repr(value).partition(" at 0x")[0]


@given(ANYTHING, st.integers(0, 500))
def test_anything_becomes_json_of_about_the_size_that_is_allowed(value, limit):
    copied = jsonable(value, limit)

    text = json.dumps(copied, allow_nan=False, ensure_ascii=False)
    text.encode()
    assert "\0" not in text
    assert json.loads(text) == copied
    assert len(text) < 8 * limit + 1500


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**53), 2**53)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text("abc"), inner, max_size=4)
        ),
        max_leaves=20,
    )
)
def test_json_that_fits_is_copied_as_it_is(value):
    assert jsonable(value, ROOM) == value


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_object_becomes_bounded_json(make):
    copied = jsonable({"before": 1, "given": make(), "after": 2}, ROOM)

    assert (copied["before"], copied["after"]) == (1, 2)
    assert len(json.dumps(copied)) < 3 * ROOM


def test_an_interrupt_is_not_swallowed():
    class Impatient(dict):
        def items(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jsonable(Impatient(), ROOM)


@pytest.mark.parametrize(
    ("value", "copied"),
    [
        (float("nan"), None),
        (float("-inf"), None),
        (2**53, 2**53),
        (2**70, "1180591620717411303424"),
        (-(2**53) - 1, "-9007199254740993"),
        ("a\0b", "a\ufffdb"),
        ("\ud83d!", "\ufffd!"),
        (b"\x00\xff", "<2 bytes>"),
        (bytearray(3), "<3 bytes>"),
        (memoryview(b"abc"), "<3 bytes>"),
        ({3}, [3]),
        (frozenset(), []),
        ((1, (2,)), [1, [2]]),
        (Pair(1, 2), [1, 2]),
        (OrderedDict(a=1), {"a": 1}),
        (UserDict(a=1), {"a": 1}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (Colour.RED, "red"),
        (Number.ONE, 1),
        (Word.YES, "yes"),
        (datetime(2026, 11, 1, tzinfo=UTC), "2026-11-01 00:00:00+00:00"),
        (date(2026, 11, 1), "2026-11-01"),
        (timedelta(hours=1), "1:00:00"),
        (Decimal("1.10"), "1.10"),
        (Fraction(1, 2), 0.5),
        (UUID(int=0), "00000000-0000-0000-0000-000000000000"),
        (PurePosixPath("/a"), "/a"),
        (np.int64(2**62), "4611686018427387904"),
        (np.uint8(7), 7),
        (np.float32(0.5), 0.5),
        (np.float64("nan"), None),
        (np.bool_(1), True),
        (np.str_("a"), "a"),
        (np.zeros(3), "<numpy.ndarray>"),
        (City(name="Rome"), {"name": "Rome"}),
        (Flight(to=City(name="Rome")), {"to": {"name": "Rome"}}),
        (SecretStr("x"), "<pydantic.types.SecretStr>"),
        (City, "<pydantic._internal._model_construction.ModelMetaclass>"),
        (Flight, "<type>"),
        (ValueError("x"), "<ValueError>"),
        (len, "<builtin_function_or_method>"),
    ],
    ids=without_address,
)
def test_each_kind_has_its_form(value, copied):
    found = jsonable(value, ROOM)

    assert found == copied
    assert type(found) is type(copied)


@pytest.mark.parametrize(
    ("key", "copied"),
    [
        (1, "1"),
        (1.5, "1.5"),
        (True, "true"),
        (None, "null"),
        ((1, "a"), '[1, "a"]'),
        (Word.YES, "yes"),
        (np.str_("a"), "a"),
        (date(2026, 11, 1), "2026-11-01"),
        ("\ud800", "\ufffd"),
        (Colour, "<enum.EnumType>"),
    ],
    ids=lambda key: repr(key)[:20],
)
def test_each_kind_of_key_becomes_a_text(key, copied):
    assert jsonable({key: 0}, ROOM) == {copied: 0}


def test_an_integer_too_long_to_be_written_is_named_as_value_and_as_key():
    assert jsonable({10**5000: 10**5000}, ROOM) == {"<huge integer>": "<huge integer>"}


def test_keys_that_look_alike_are_counted_as_cut():
    assert jsonable({object(): 1, object(): 2}, ROOM) == {"<object>": 2, "…": "cut: 2 items in all"}


def test_a_long_text_is_cut_quickly_and_says_so():
    copied = jsonable("x" * 10_000_000, 100)

    assert copied == "x" * 98 + "… [cut: 10000000 characters in all]"


def test_many_bytes_of_few_characters_are_counted_as_bytes():
    copied = jsonable(["日" * 100, "日" * 100, "日" * 100], 600)

    assert len(copied[0].encode()) == 300
    assert len(copied[1].encode()) < 340
    assert copied[2] == "… [cut: 3 items in all]"


def test_a_long_list_or_mapping_says_how_much_was_cut():
    items = jsonable([*range(100_000)], ROOM)
    mapping = jsonable({str(number): "x" * 100 for number in range(100)}, 1000)

    assert (len(items), items[-1]) == (1001, "… [cut: 100000 items in all]")
    assert 5 < len(mapping) < 12
    assert mapping["…"] == "cut: 100 items in all"


def test_a_circle_and_a_structure_of_2000_levels_end():
    circle, deep = [], {}
    circle.append({"a": circle})
    bottom = deep
    for _ in range(2000):
        bottom = bottom.setdefault("a", {})

    written = [json.dumps(jsonable(value, ROOM)) for value in (circle, deep)]

    assert [text.count('"a"') for text in written] == [8, 16]
    assert "<dict: left out>" in written[1]


@pytest.mark.parametrize("leaf", [None, [], {}, (), True, object()], ids=without_address)
@pytest.mark.timeout(5)
def test_a_structure_that_holds_one_thing_a_billion_times_ends(leaf):
    [leaf := [leaf] * 1000 for _ in range(12)]

    copied = jsonable(leaf, 10_000)

    assert len(json.dumps(copied)) < 100_000


def test_a_mapping_that_another_thread_changes_is_read_whole():
    changing, stop = dict.fromkeys(range(200), "x"), threading.Event()
    thread = threading.Thread(target=keep_changing, args=(changing, stop))
    thread.start()

    copies = [jsonable(changing, ROOM) for _ in range(300)]

    stop.set()
    thread.join()
    assert [copied for copied in copies if not isinstance(copied, dict)] == []


def keep_changing(mapping, stop):
    while not stop.is_set():
        mapping["more"] = 1
        mapping.pop("more")


def test_a_generator_is_not_consumed():
    numbers = iter(range(3))

    copied = jsonable({"numbers": numbers, "rest": (n for n in [1])}, ROOM)

    assert copied == {"numbers": "<range_iterator>", "rest": "<generator>"}
    assert [*numbers] == [0, 1, 2]


def test_a_class_with_an_endless_name_is_bounded():
    kind = type("x" * 100_000, (), {})

    assert len(jsonable([kind()] * 5, ROOM)[0]) < 400


def test_an_attribute_that_cannot_be_read_costs_its_object_alone():
    @dataclass
    class Partly:
        name: str
        rest: object

    assert jsonable([Partly("a", AlwaysRaises()), 1], ROOM)[1] == 1
    assert jsonable(Partly("a", AlwaysRaises()), ROOM)["name"] == "a"
