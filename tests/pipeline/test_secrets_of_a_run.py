"""What was found to be a secret in one place of a run is written and sent of no place of it."""

import random
import string

import pytest
from pipeline_helpers import trace_of

from kp_middleware import Step, current_trace

_random = random.Random(20260612)
SECRET = "Quiet-" + "".join(_random.choices(string.ascii_letters + string.digits, k=10)) + "7!"
TOLD = f"Log in with password={SECRET} please"


class RefusedError(Exception):
    """Quotes what it was given, as errors do."""


def in_the_same_text():
    current_trace().thought(f"{TOLD}. I typed {SECRET}.")


def in_an_earlier_step():
    current_trace().thought(f"I try {SECRET}")
    current_trace().thought(TOLD)


def in_a_later_step():
    current_trace().thought(TOLD)
    current_trace().observation(f"you typed {SECRET}")


def in_an_error_of_a_tool():
    current_trace().thought(TOLD)
    current_trace().tool_call("login", {"as": "anna", "with": [SECRET]})
    current_trace().error(RefusedError(f"{SECRET!r} is not right"), tool="login")


def in_a_key():
    current_trace().thought(TOLD)
    current_trace().tool_call("count", {SECRET: 1})


def in_json_in_a_text():
    current_trace().tool_call("login", {"password": SECRET})
    current_trace().observation(f'{{"log": "{{\\"typed\\": \\"{SECRET}\\"}}"}}', tool="login")


def in_a_tag():
    current_trace().thought(TOLD)
    current_trace().tags = ("nightly", SECRET)


def in_the_id_of_its_thread():
    current_trace().thought(TOLD)
    current_trace().thread_id = SECRET


def in_the_name_of_its_agent():
    current_trace().thought(TOLD)
    current_trace().agent_name = SECRET


def in_its_result():
    current_trace().thought(TOLD)
    return SECRET


def in_what_it_was_asked(_):
    current_trace().thought(TOLD)


def told_by_a_tag():
    current_trace().thought(f"I typed {SECRET}")
    current_trace().tags = (TOLD,)


@pytest.fixture
def kp(pulse, sending):
    return pulse(**sending, privacy_level="private")


WAYS = (
    in_the_same_text,
    in_an_earlier_step,
    in_a_later_step,
    in_an_error_of_a_tool,
    in_a_key,
    in_json_in_a_text,
    in_a_tag,
    in_the_id_of_its_thread,
    in_the_name_of_its_agent,
    in_its_result,
    in_what_it_was_asked,
    told_by_a_tag,
)


@pytest.mark.parametrize("agent", WAYS, ids=lambda agent: agent.__name__)
def test_a_secret_found_once_is_nowhere_in_the_file_and_in_what_is_sent(
    kp, registry, written, agent
):
    kp.capture(agent)(*[f"what is {SECRET}?"] * (agent is in_what_it_was_asked))
    kp.flush()

    [sent] = registry.requests
    assert b"[REDACTED:" in sent.body
    assert SECRET.encode() not in written() + sent.body


def test_the_text_of_an_error_that_ends_a_run_is_not_written_with_its_secret(kp, written):
    @kp.capture
    def ask():
        current_trace().thought(TOLD)
        raise RefusedError(SECRET)

    with pytest.raises(RefusedError):
        ask()
    kp.flush()

    assert SECRET.encode() not in written()
    assert b"RefusedError" in written()


def test_a_common_word_that_was_a_password_stays_elsewhere(kp, registry):
    @kp.capture
    def ask():
        current_trace().thought("password=customer")
        return "the customer is happy"

    ask()
    kp.flush()

    assert b"the customer is happy" in registry.requests[0].body
    assert b"password=[REDACTED:password]" in registry.requests[0].body


def test_what_was_taken_out_is_counted_in_every_place_of_its_run_and_in_no_other(pulse, stored):
    kp = pulse(sync=True)
    said = [Step(step_id=0, type="thought", content=f"I typed {SECRET}")]

    kp.submit(trace_of(TOLD, steps=said, result_summary=SECRET))
    first = stored()
    kp.submit(trace_of("hello", steps=said))

    assert first["redactions"] == {"password": 3}
    assert stored()["steps"][0]["content"] == f"I typed {SECRET}"
