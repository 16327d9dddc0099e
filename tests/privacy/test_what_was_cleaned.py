"""Whatever is cleaned is clean, and keeps its shape."""

import json
from dataclasses import replace

import made_up
from hypothesis import given
from hypothesis import strategies as st

from kp_middleware.privacy import Policy, check_clean, redact_jsonable, redact_text

PIECES = st.sampled_from(
    (
        *made_up.PREFIXED.values(),
        *made_up.CONTACT.values(),
        *made_up.SENSITIVE.values(),
        *(form.format(value) for form, value in made_up.IN_PLACE),
        *("[REDACTED:email]", "[REDACTED", "password=", "token: ", '"', "\\", "\u200b", "\ue000"),
        *("\x1b[1m", r"\n", r"\x1b[0m", "%3D", "%0A", "&quot;", r"\u003d"),
    )
)
TEXTS = st.lists(PIECES | st.text(max_size=8), max_size=6).map("".join)

KEYS = st.sampled_from(
    ("password", "apiKey", "note", "phone", "id", "name", "value", "max_tokens", "a@b.example")
)
STRINGS = st.sampled_from(
    (
        *made_up.PREFIXED.values(),
        *made_up.CONTACT.values(),
        *(form.format(value) for form, value in made_up.IN_PLACE),
        *("--password", "secret", '{"token": ["x1", {"a": "b@c.example"}]}', "[REDACTED:email]"),
    )
)
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | STRINGS | st.text()
)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)

LEVELS = st.sampled_from(("private", "aggregated"))
DENIED = Policy(deny=("e", r"/\d+/"))
DENIED_AND_ALLOWED = replace(DENIED, allow=("/.*@.*/",), numbered=True)
BY_KEYS = Policy(
    allow=("anna@example.org",), deny=("Bluebird",), keys_deny=("salary",), keys_allow=("token",)
)
NUMBERED = replace(BY_KEYS, numbered=True)


@given(TEXTS, LEVELS, st.sampled_from((Policy(), DENIED, DENIED_AND_ALLOWED)))
def test_a_text_that_was_cleaned_needs_nothing_more(text, level, policy):
    once = redact_text(text, level=level, policy=policy).text

    again = redact_text(once, level=level, policy=policy)
    kept = redact_text(once, level="private", policy=policy)

    assert again.text == kept.text == once
    assert not again.counts


@given(TEXTS)
def test_a_policy_that_adds_never_keeps_what_would_have_gone(text):
    added = redact_text(text, level="aggregated", policy=DENIED).text

    assert redact_text(added, level="aggregated").text == added


@given(DOCUMENTS, LEVELS, st.sampled_from((Policy(), BY_KEYS, NUMBERED)))
def test_a_document_that_was_cleaned_is_clean_and_keeps_its_shape(document, level, policy):
    once = redact_jsonable(document, level=level, policy=policy).value

    again = redact_jsonable(once, level=level, policy=policy)

    check_clean(json.dumps(once).encode(), level=level, policy=policy)
    assert made_up.shape(once) == made_up.shape(document)
    assert again.value == once
    assert not again.counts
