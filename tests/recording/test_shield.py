"""Our failures are counted and said once; the agent does not notice."""

import functools

import pytest

from kp_middleware.recording import shield


def failing(kind):
    raise kind("inside")


def test_failures_give_none_and_are_counted_and_the_first_of_a_kind_is_logged_with_its_cause(
    caplog,
):
    shielded = shield(failing)

    assert [shielded(ValueError), shielded(ValueError), shielded(KeyError)] == [None] * 3
    assert shield.failures == {"failing: ValueError": 2, "failing: KeyError": 1}
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        "a step was not recorded (failing: ValueError)",
        "a step was not recorded (failing: KeyError)",
    ]
    assert "inside" in caplog.text


def test_a_result_passes_and_the_function_keeps_its_name():
    assert shield(sorted)([2, 1], reverse=True) == [2, 1]
    assert shield(failing).__name__ == "failing"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_ends_a_program_passes(kind):
    with pytest.raises(kind):
        shield(failing)(kind)


def test_a_function_without_a_name_is_shielded_too():
    assert shield(functools.partial(failing, ValueError))() is None
    assert shield.failures == {"partial: ValueError": 1}
