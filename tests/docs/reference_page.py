"""The content of docs/reference.md: signatures and docstrings of the public names.

cog runs it: ``make docs``.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from enum import EnumType
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from kp_middleware import Settings

SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Example):$", re.MULTILINE)
TITLES = MappingProxyType({"Args": "Takes", "Attributes": "Has"})
_MARGIN = 76


def module_chapters(module_name: str, *, without: frozenset[str] = frozenset()) -> str:
    """A chapter for each public name of a module, but for those that are told elsewhere."""
    module = import_module(module_name)
    return chapters(module_name, *(name for name in public_names(module) if name not in without))


def chapters(module_name: str, *names: str) -> str:
    """A chapter for each of these names of a module."""
    module = import_module(module_name)
    return "\n\n".join(_chapter(module, name) for name in names)


def methods(owner: type, *names: str) -> str:
    """Describe these methods."""
    return "\n\n".join(part for name in names for part in _member(owner, name))


def public_names(module: ModuleType) -> list[str]:
    """Return the names in ``__all__``, or those that a module without it defines."""
    defined = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    return [*getattr(module, "__all__", defined)]


def _chapter(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    parts = [f"### {name}", f"`from {module.__name__} import {name}`", *_described(module, name)]
    if inspect.isclass(value):
        parts += [part for member in _members(value) for part in _member(value, member)]
    return "\n\n".join(filter(None, parts))


def _described(module: ModuleType, name: str) -> Iterator[str]:
    value = getattr(module, name)
    if get_origin(value) is not None:
        yield _prose(_alias_docstring(module, name))
        return
    nobody_makes_one = getattr(value, "_is_protocol", False) or isinstance(value, EnumType)
    if callable(value) and not nobody_makes_one:
        yield f"```text\n{_signature(name, value)}\n```"
    yield _docstring(value)


def _alias_docstring(module: ModuleType, name: str) -> str:
    """The text below an alias: at run time it has its type's docstring."""
    body = ast.parse(inspect.getsource(module)).body
    place = next(
        at
        for at, node in enumerate(body)
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name
    )
    return ast.literal_eval(ast.unparse(body[place + 1])).strip()


def _member(owner: type, name: str) -> Iterator[str]:
    value = inspect.getattr_static(owner, name)
    title = f"{owner.__name__}.{name}"
    if isinstance(value, property):
        yield f"**`{title}`**"
        yield _docstring(value)
        return
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    yield f"**`{_signature(title, function, line=False)}`**"
    yield _docstring(function)


def _members(owner: type) -> Iterator[str]:
    """Its public methods and properties, also inherited ones, that have something to say."""
    kept = [one for one in owner.__mro__ if one is owner or one.__name__ in {"Pipeline", "Reading"}]
    members = {name: value for one in kept for name, value in vars(one).items()}
    for name, value in members.items():
        documented = isinstance(value, property | classmethod | staticmethod) or callable(value)
        if not name.startswith(("_", "on_", "model_")) and documented and value.__doc__:
            yield name


def _signature(name: str, value: Any, *, line: bool = True) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    kept = [p for p in signature.parameters.values() if p.name not in {"self", "cls"}]
    words = [_parameter(one) for one in _with_marks(kept)]
    whole = f"{name}({', '.join(words)})"
    if not line or len(whole) <= _MARGIN:
        return whole
    return "\n".join([f"{name}(", *(f"    {word}," for word in words), ")"])


def _with_marks(parameters: list[inspect.Parameter]) -> Iterator[inspect.Parameter | str]:
    """The parameters, with ``/`` and ``*`` where they stand in the source."""
    kinds = [one.kind for one in parameters]
    for number, one in enumerate(parameters):
        starts_keywords = one.kind is one.KEYWORD_ONLY and one.KEYWORD_ONLY not in kinds[:number]
        if starts_keywords and one.VAR_POSITIONAL not in kinds:
            yield "*"
        yield one
        if one.kind is one.POSITIONAL_ONLY and one.POSITIONAL_ONLY not in kinds[number + 1 :]:
            yield "/"


def _parameter(one: inspect.Parameter | str) -> str:
    if isinstance(one, str):
        return one
    if one.default is inspect.Parameter.empty:
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        return f"{stars}{one.name}"
    return f"{one.name}={_default(one.default)}"


def _default(value: object) -> str:
    """As it is typed; what cannot be typed is left open."""
    return "..." if value is ... or repr(value).startswith("<") else repr(value)


def _docstring(value: Any) -> str:
    """A docstring in Google's style as Markdown; nothing where it is inherited."""
    text = inspect.cleandoc(value.__doc__ or "").split("\n>>> ", 1)
    first, *sections = SECTION.split(text[0].rstrip())
    chapters = [_prose(first)]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        chapters.append(f"{TITLES.get(title, title)}:\n\n{_section(title, body)}")
    if len(text) > 1:
        chapters.append(f"```pycon\n>>> {text[1].rstrip()}\n```")
    return "\n\n".join(filter(None, chapters))


def _section(title: str, body: str) -> str:
    lines = inspect.cleandoc(f"\n{body}").splitlines()
    if title in {"Returns", "Example"}:
        return _prose("\n".join(lines))
    entries = re.split(r"\n(?=\S)", "\n".join(lines))
    return "\n".join(_entry(entry) for entry in entries)


def _entry(entry: str) -> str:
    name, _, words = entry.partition(":")
    return f"- `{name}`: {_prose(' '.join(words.split()))}"


def _prose(text: str) -> str:
    """Double backquotes, and those around names alone, as Markdown has them."""
    return re.sub(r"``(.+?)``", r"`\1`", text.strip())


def settings() -> str:
    """A row for each setting: its variable, its default, what it does."""
    described = dict(_attributes(Settings))
    rows = [
        f"| `{name}` | `KP_{name.upper()}` | {_value(field)} | {described[name]} |"
        for name, field in Settings.model_fields.items()
    ]
    return "\n".join(
        ["| setting | variable | default | what it does |", "|---|---|---|---|", *rows]
    )


def _attributes(owner: type) -> Iterator[tuple[str, str]]:
    text = inspect.cleandoc(owner.__doc__ or "")
    body = SECTION.split(text)[SECTION.split(text).index("Attributes") + 1]
    for entry in re.split(r"\n(?=\S)", inspect.cleandoc(f"\n{body}")):
        name, _, words = entry.partition(":")
        yield name, _prose(" ".join(words.split())).replace("|", "\\|")


def _value(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "by `shared`" if field.annotation is int else "in your data folder"
    return "none" if field.default in (None, (), {}) else f"`{field.default}`"
