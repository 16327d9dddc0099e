"""A tool call that leaves says in ``content`` what was called with what; here it is as it was."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pipeline_helpers import trace_of

from kp_middleware import KnowledgePulse, Step, Tool
from kp_middleware.storage import OutboxAdmin
from kp_middleware.testing import StandInEmbedder

SECRET = "hunter2-" + "Qx9vT4mZ7pLw"


@pytest.fixture
def sent(pulse, sending, registry):
    """Sends a run of one tool call, and reads its step as the registry got it."""

    def send(name="convert", **fields):
        kp = pulse(sync=True, **sending)
        kp.submit(trace_of(steps=[call(name, **fields)]))
        kp.flush()
        return json.loads(registry.requests[-1].body)["steps"][0]

    return send


def call(name="convert", **fields):
    return Step(step_id=0, type="tool_call", tool=Tool(name=name), **fields)


@pytest.mark.parametrize(
    ("given_input", "content"),
    [
        ({"amount": 250}, "convert(amount=250)"),
        ({"amount": 2.5, "to": "EUR"}, 'convert(amount=2.5, to="EUR")'),
        ({"query": 'say "hi"\n'}, 'convert(query="say \\"hi\\"\\n")'),
        (
            {"of": ["a", None], "with": {"deep": True}},
            'convert(of=["a", null], with={"deep": true})',
        ),
        ({}, "convert()"),
        (None, "convert()"),
    ],
    ids=["a number", "two", "a text", "structures", "nothing", "not said"],
)
def test_a_tool_call_leaves_with_what_was_called(sent, given_input, content):
    fields = {} if given_input is None else {"input": given_input}

    step = sent(**fields)

    assert step["content"] == content
    assert step.get("input") == given_input


def test_what_a_tool_call_says_of_itself_is_left(sent):
    assert sent(input={"amount": 250}, content="two coffees")["content"] == "two coffees"


def test_a_long_call_is_cut_and_each_argument_of_it(sent):
    content = sent(input={"page": "x" * 5000, "more": "y" * 60, "last": ["z"] * 500})["content"]

    assert len(content) == 200
    assert content.startswith(f'convert(page="{"x" * 79}…", more="{"y" * 60}", last=["z", ')


def test_nothing_else_of_the_run_is_reported_in_words(pulse, sending, registry):
    steps = [
        Step(step_id=0, type="thought"),
        Step(step_id=1, type="observation", tool=Tool(name="convert"), output_summary="240"),
        Step(step_id=2, type="error_recovery", tool=Tool(name="convert"), input={"amount": 1}),
    ]
    kp = pulse(sync=True, **sending)

    kp.submit(trace_of(steps=steps))
    kp.flush()

    assert all("content" not in step for step in json.loads(registry.requests[0].body)["steps"])


@pytest.mark.parametrize(
    "given_input",
    [
        {"password": SECRET},
        {"login": {"user": "bob", "password": SECRET}},
        {"text": "x" * 60 + f" password={SECRET}"},
        {"headers": {"Authorization": f"Bearer {SECRET}"}},
        {"args": ["--password", SECRET]},
        {"name": "DB_PASSWORD", "value": SECRET},
    ],
    ids=["by its name", "deep", "over the cut", "a header", "a flag", "named beside"],
)
def test_no_secret_comes_back_in_the_words_of_a_call(sent, given_input):
    content = sent("login", input=given_input)["content"]

    assert SECRET[:12] not in content
    assert content.startswith("login(")


def test_what_is_taken_out_at_the_outbox_door_is_not_in_the_words_either(sent):
    step = sent("mail", input={"to": "anna@example.org"})

    assert step["content"] == 'mail(to="[REDACTED:email]")'


def test_the_local_copy_its_score_and_what_is_embedded_do_not_change(
    pulse, sending, stored, connection
):
    embedder = StandInEmbedder()
    kp = pulse(**sending, embedder=embedder)

    kp.submit(trace_of(steps=[call(input={"amount": 250})]))
    kp.flush()

    entry = OutboxAdmin(connection).entry(1)
    assert "content" not in json.loads(entry.document)["steps"][0]
    assert json.loads(entry.body)["metadata"]["quality_score"] == pytest.approx(stored()["score"])
    assert not any("convert(" in text for text in embedder.asked)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def leaving(tmp_path_factory):
    """Tells what leaves of a tool call that clears."""
    left, db = [], tmp_path_factory.mktemp("calls") / "kp.db"
    facts = {"db": db, "embedder": None, "sync": True, "threshold": 0}
    with KnowledgePulse(exporter=left.append, **facts) as kp:

        def leave(step):
            kp.submit(trace_of(steps=[step]))
            assert not kp.flush(50)
            return json.loads(left.pop().body)["steps"][0]

        yield leave


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=300), st.dictionaries(st.text(max_size=20), json_like, max_size=6))
def test_whatever_was_called_has_words_within_the_bound_and_passes_the_second_look(
    leaving, name, given_input
):
    step = leaving(call(name, input=given_input))

    assert 0 < len(step["content"]) <= 240
