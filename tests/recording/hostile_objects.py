"""Objects that do what they can to disturb whoever reads them."""

from collections.abc import Mapping


class AlwaysRaises:
    """Raises whatever is asked of it."""

    def __repr__(self):
        raise RuntimeError("repr")

    __str__ = __len__ = __iter__ = __bool__ = __hash__ = __eq__ = __float__ = __int__ = __repr__

    def __getattr__(self, name):
        raise RuntimeError(name)


class LyingList(list):
    """Has no length and no items."""

    def __len__(self):
        raise RuntimeError("len")

    def __iter__(self):
        raise RuntimeError("iter")


class EndlessMapping(Mapping):
    """Ever more items, whatever it says."""

    def __len__(self):
        return 1

    def __getitem__(self, key):
        return key

    def __iter__(self):
        return iter(range(10**9))


class Nameless(type):
    """A kind of class that does not say what it is called."""

    @property
    def __name__(cls):
        raise RuntimeError("name")

    __module__ = __name__  # noqa: A003 - that is the point

    def __repr__(cls):
        raise RuntimeError("repr")


class NamelessInstance(metaclass=Nameless):
    """Nobody knows."""

    def __len__(self):
        raise RuntimeError("len")


class NoClass:
    """Does not even say what it is."""

    @property
    def __class__(self):
        raise RuntimeError("class")


class OddText(str):
    """A text that reads as another."""

    __slots__ = ()

    def __str__(self):
        raise RuntimeError("str")

    def __getitem__(self, index):
        raise RuntimeError("slice")


class OddError(Exception):
    """Cannot say what went wrong."""

    def __str__(self):
        raise RuntimeError("str")


HOSTILE = {
    "raises always": AlwaysRaises,
    "lying list": LyingList,
    "lying list in a list": lambda: [LyingList([1])],
    "endless mapping": EndlessMapping,
    "class without a name": NamelessInstance,
    "instance without a class": NoClass,
    "text that reads as another": lambda: OddText("a" * 100),
    "key that raises": lambda: {OddText("a"): 1, (1, OddText("b")): 2},
}
