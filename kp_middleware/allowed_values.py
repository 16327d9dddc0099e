"""Which values a setting takes, in words."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError


def what_is_needed(schema: Mapping[str, Any], error: ValidationError) -> str:
    """What a setting takes, or what is wrong with what it was given; never the value itself.

    Args:
        schema: Of the setting, as JSON Schema has it.
        error: That its value has raised.
    """
    first = error.errors(include_input=False, include_url=False)[0]
    where = first["loc"][1:]
    allowed = _allowed(schema)
    if first["type"] == "value_error" and not where:
        return first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error" and isinstance(where[0], int):
        return (
            f"entry {where[0] + 1} is no pattern that RE2 understands"  # it may say what is secret
        )
    return f"{allowed} is needed"


def _allowed(schema: Mapping[str, Any]) -> str:
    [schema, *_] = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    match schema:
        case {"enum": [*names, last]}:
            return f"{', '.join(names)} or {last}"
        case {"type": "boolean"}:
            return "true or false"
        case {"type": "integer", "minimum": least}:
            return f"a whole number of at least {least}"
        case {"type": "number", "minimum": least}:
            return f"a number of at least {least:g}"
        case {"type": "number", "exclusiveMinimum": bound}:
            return f"a number above {bound:g}"
        case {"type": "string", "minLength": _}:
            return "a text that is not empty"
        case {"type": "array", "items": {"description": described}}:
            return f"a list of {described}"
        case {"type": "array"}:
            return "a list of texts that are not empty, of 1,000 signs at most,"
        case {"type": "object"}:
            return "a table of four weights that sum to 1 for each domain"
        case _:
            return "a text"
