"""A secret in a column goes with its heading; what describes a secret is none."""

import json

import pytest

from kp_middleware.privacy import redact_jsonable, redact_text

SECRET, MARK = "q8ZrT2mVx0LdNf5Y", "[REDACTED:password]"
TABLES = {
    "commas": "user,password\nbob,{}\n",
    "lines of Windows": "user,password\r\nbob,{}\r\n",
    "quoted cells": '"user","password"\n"bob","{}"\n',
    "semicolons": "user;password\nbob;{}\n",
    "tabs": "id\tuser\tpassword\n1\tbob\t{}\n",
    "a column after it": "user,pw,role\nbob,{},admin\n",
    "three columns": "host,user,api_token\nh1,bob,{}\n",
    "aligned": "username  password\nbob       {}\n",
    "a data frame": "  user  password\n0  bob  {}\n",
    "aligned, with more": "NAME   TOKEN              AGE\nfirst  {}   3d\n",
    "drawn in boxes": "┏━━━━┳━━━━━━━┓\n┃ id ┃ token ┃\n┡━━━━╇━━━━━━━┩\n│ 1  │ {} │\n",
    "a row in boxes": "│ DB_PASSWORD │ {} │\n",
    "names and values": "Key         Value\n---         -----\ntoken       {}\nrenewable   true\n",
    "a line of two columns": "DB_PASSWORD                {}\n",
    "a ruler of Windows": "| user | password |\r\n|---|---|\r\n| bob | {} |\r\n",
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_secret_goes_from_below_its_heading(table):
    text, left = table.format(SECRET), table.format(MARK).splitlines()

    told = redact_text(text).text.splitlines()

    assert all(line in {one, MARK} for line, one in zip(told, left, strict=True))
    assert SECRET not in str(redact_jsonable({"output_summary": text}, level="private").value)
    assert SECRET not in redact_text(f"this is the file\n{text}").text


SCHEMAS = [
    {"properties": {"password": {"type": "string", "description": "The password of the user"}}},
    {"token": {"type": ["string", "null"], "title": "Token", "default": None}},
    {"api_key": {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "Api Key"}},
    {"credentials": {"type": "object", "properties": {"user": {"type": "string"}}}},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: next(iter(schema)))
def test_the_schema_of_a_tool_stays_as_it_is(schema):
    assert redact_jsonable(schema, level="private").value == schema
    assert redact_jsonable({"content": json.dumps(schema)}, level="private").found == ()


def test_the_default_in_a_schema_is_a_value():
    schema = {"password": {"type": "string", "default": SECRET}}

    assert SECRET not in str(redact_jsonable(schema, level="private").value)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO features (name, key) VALUES ('Dark mode', 'dark_mode_2x');",
        "COPY public.tags (id, key) FROM stdin;\n1\tq8ZrT2mVx0LdNf5Y\n\\.",
        "option     token\nverbose    everything\nquiet      nothing\n",
        "token_duration       768h\ntoken_type           service\n",
        "password       required\nsecret         2\nPyJWT          2.8.0\nmax_tokens     4096\n",
        "token          /run/secrets/token1\nsecret     $GITHUB_TOKEN1\n",
        "password_reset_at: 2026-01-02T03:04:05Z",
    ],
    ids=[
        "keys of features",
        "keys of tags",
        "an aligned text below a heading",
        "about a token",
        "two columns",
        "places",
        "when a secret was changed",
    ],
)
def test_what_is_no_secret_in_a_column_or_a_field_stays(text):
    assert redact_text(text).text == text
