import made_up
import pytest

from kp_middleware import ReasoningTrace, Step, Tool
from kp_middleware.errors import RedactionError
from kp_middleware.privacy import redact_trace
from kp_middleware.traces import Entity, KnowledgeGraphDelta, Relationship

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


def test_what_has_nothing_to_hide_is_not_changed_and_ids_of_ours_stay(trace):
    metadata = trace.metadata.model_copy(update={"agent_id": trace.id, "validated_by": (trace.id,)})
    known = trace.model_copy(update={"metadata": metadata, "source_skill": trace.id})

    for harmless in (trace, known):
        redacted = redact_trace(harmless, level="aggregated")

        assert redacted.trace == harmless
        assert not redacted.counts


def test_contacts_are_kept_at_private(trace):
    redacted = redact_trace(everywhere(trace, "write to anna@example.org"), level="private")

    assert redacted.trace.outcome.result_summary == "write to anna@example.org"


def nested(depth):
    value = {"a": {}}
    for _ in range(depth):
        value = {"a": value}
    return value


CIRCLE = {}
CIRCLE["again"] = CIRCLE
UNFIT = {
    "a circle": (CIRCLE, "redactor_error", ""),
    "no JSON": ({"secret": object()}, "redactor_error", ""),
    "too deep": (nested(70), "too_deep", "steps[0].input.a.a"),
}


@pytest.mark.parametrize(("given", "reason", "where"), UNFIT.values(), ids=UNFIT.keys())
def test_what_cannot_be_a_document_is_refused(trace, given, reason, where):
    step = Step(step_id=0, type="tool_call", input=given)

    with pytest.raises(RedactionError) as refusal:
        redact_trace(trace.model_copy(update={"steps": (step,)}), level="private")

    assert refusal.value.reason == reason
    assert refusal.value.where.startswith(where)
    assert refusal.value.__suppress_context__ or refusal.value.__context__ is None


def test_an_id_that_is_no_id_after_redaction_is_refused(trace):
    odd = trace.model_copy(update={"id": "kp:" + SECRET})

    with pytest.raises(RedactionError) as refusal:
        redact_trace(odd, level="private")

    assert (refusal.value.reason, refusal.value.where) == ("invalid_after_redaction", "id")


VALUE = "q7Rm#2xWz!Kp"
ASKED = {
    "a command": ("bash", {"command": "jq -r .password config.json"}, VALUE),
    "a variable": ("get_env_var", {"variable": "DB_PASSWORD"}, VALUE + "\n"),
    "a numbered line": ("Read", {"file_path": "/app/secrets/api_key.txt"}, f"     1\t{VALUE}"),
    "JSON": (
        "query",
        {"sql": "select value from t where key = 'token'"},
        f'[{{"value": "{VALUE}"}}]',
    ),
    "a row": ("query", {"sql": "select password from users limit 1"}, f"[('{VALUE}',)]"),
    "columns that are selected": (
        "bash",
        {"command": "psql -tAc 'select name, password from users'"},
        f"bob|{VALUE}",
    ),
    "Playwright": (
        "browser_evaluate",
        {"function": "() => $('#api-key').value"},
        f'### Result\n"{VALUE}"',
    ),
    "a sentence": ("ask_user", {"question": "Password?"}, f"ok it's {VALUE}"),
    "a person": ("ask_user", {"question": "What is your password?"}, VALUE),
}
NOT_IT = {
    "a commit": ("bash", {"command": "git log -1 --format=%H token.py"}, "4f1d2c3b" * 5),
    "a file": ("bash", {"command": "ls secrets/token*"}, "token-7f9x.yaml"),
    "an id": ("send_email", {"subject": "Your password was changed"}, "msg_4kX92mQ7vR1z"),
    "no name": ("bash", {"command": "cat build.txt"}, VALUE),
}


def answered(trace, tool, given, output):
    step = Step(
        step_id=0, type="tool_call", tool=Tool(name=tool), input=given, output_summary=output
    )
    redacted = redact_trace(trace.model_copy(update={"steps": (step,)}), level="private")
    return redacted.trace.steps[0].output_summary


@pytest.mark.parametrize(("tool", "given", "output"), ASKED.values(), ids=ASKED.keys())
def test_the_only_word_of_an_output_goes_if_the_call_names_a_secret(trace, tool, given, output):
    assert VALUE not in answered(trace, tool, given, output)


def test_tokens_go_from_a_list_of_them_and_what_a_query_is_given_goes_with_its_answer(trace):
    token, query = "Xk29q7ZxfIsdKYdH8vAv", "UPDATE users SET password = $1 WHERE id = $2"

    assert token not in answered(trace, "list_api_keys", {}, f"1. ci - {token}\n2. cd - none")
    assert VALUE not in answered(
        trace, "db", {"query": query, "params": [VALUE, 3]}, f"set {VALUE}"
    )


@pytest.mark.parametrize(("tool", "given", "output"), NOT_IT.values(), ids=NOT_IT.keys())
def test_an_id_a_file_or_a_hash_that_a_call_prints_stays(trace, tool, given, output):
    assert answered(trace, tool, given, output) == output


@pytest.mark.parametrize("answer", [VALUE, f"It's {VALUE}."], ids=["alone", "in a sentence"])
def test_the_answer_to_a_question_for_a_secret_goes_everywhere(trace, answer):
    said = ("Please tell me your password.", answer, f"I typed {VALUE}")
    steps = tuple(Step(step_id=i, type="thought", content=text) for i, text in enumerate(said))

    redacted = redact_trace(trace.model_copy(update={"steps": steps}), level="private")

    assert VALUE not in redacted.trace.model_dump_json()
