import made_up
import pytest

from kp_middleware.errors import RedactionError
from kp_middleware.privacy import redact_trace
from kp_middleware.traces import (
    Entity,
    KnowledgeGraphDelta,
    ReasoningTrace,
    Relationship,
    Step,
    Tool,
)

SECRET = made_up.PREFIXED["github"]


@pytest.fixture
def trace():
    step = Step(
        step_id=0, type="tool_call", content="look", tool=Tool(name="fetch"), input={"n": 1}
    )
    return ReasoningTrace.of("find it", [step], result_summary="found")


def everywhere(trace, text):
    """The trace with a text in each field that can hold one."""
    step = Step(
        step_id=0,
        type="tool_call",
        content=text,
        tool=Tool(name=text, mcp_server=text),
        input={"a": [text], text: 1},
        output_summary=text,
        latency_ms=1763720000000,
    )
    fields = {"agent_id": text, "framework": text, "task_domain": text, "validated_by": (text,)}
    return trace.model_copy(
        update={
            "source_skill": text,
            "metadata": trace.metadata.model_copy(update=fields),
            "task": trace.task.model_copy(update={"objective": text, "input_schema": {text: text}}),
            "steps": (step,),
            "outcome": trace.outcome.model_copy(update={"result_summary": text}),
            "knowledge_graph_delta": KnowledgeGraphDelta(
                entities=(Entity(name=text, type=text),),
                relationships=(Relationship(fact=text, valid_from=text),),
            ),
        }
    )


@pytest.mark.parametrize("text", [SECRET, "write to anna@example.org"], ids=["secret", "contact"])
def test_every_field_that_can_hold_a_text_is_cleaned(trace, text):
    redacted = redact_trace(everywhere(trace, text), level="aggregated")

    assert text not in redacted.trace.model_dump_json()
    assert sum(redacted.counts.values()) == 19


def test_what_has_nothing_to_hide_is_not_changed(trace):
    redacted = redact_trace(trace, level="aggregated")

    assert redacted.trace == trace
    assert not redacted.counts


def test_ids_of_ours_stay(trace):
    metadata = trace.metadata.model_copy(update={"agent_id": trace.id, "validated_by": (trace.id,)})
    known = trace.model_copy(update={"metadata": metadata, "source_skill": trace.id})

    assert redact_trace(known, level="aggregated").trace == known


def test_contacts_are_kept_at_private(trace):
    redacted = redact_trace(everywhere(trace, "write to anna@example.org"), level="private")

    assert redacted.trace.outcome.result_summary == "write to anna@example.org"


def test_an_id_that_is_no_id_after_redaction_is_refused(trace):
    odd = trace.model_copy(update={"id": "kp:trace:"[:3] + SECRET})

    with pytest.raises(RedactionError) as refusal:
        redact_trace(odd, level="private")

    assert (refusal.value.reason, refusal.value.where) == ("invalid_after_redaction", "id")


UNFIT = {"too deep": [[]], "no JSON": object()}
UNFIT["too deep"][0].append(UNFIT["too deep"])


@pytest.mark.parametrize("value", UNFIT.values(), ids=["a circle", "no JSON"])
def test_what_cannot_be_a_document_is_refused(trace, value):
    step = Step(step_id=0, type="tool_call", input={"secret": value})

    with pytest.raises(RedactionError) as refusal:
        redact_trace(trace.model_copy(update={"steps": (step,)}), level="private")

    assert refusal.value.reason == "redactor_error"
    assert refusal.value.__suppress_context__


def test_steps_nested_too_deep_are_refused_with_their_path(trace):
    deep = {"a": {}}
    for _ in range(70):
        deep = {"a": deep}
    step = Step(step_id=0, type="tool_call", input=deep)

    with pytest.raises(RedactionError) as refusal:
        redact_trace(trace.model_copy(update={"steps": (step,)}), level="private")

    assert refusal.value.reason == "too_deep"
    assert refusal.value.where.startswith("steps[0].input.a.a")
