"""Each error is a decision for the caller, with its facts as attributes."""

from pathlib import Path

import pytest

import kp_middleware.errors


def drawn():
    """The tree at the top of the module: each class and how deep it is."""
    lines = kp_middleware.errors.__doc__.split("\n\n")[1].splitlines()
    names = {line.strip("│├└─ ").split()[0]: line for line in lines}
    return {name: line.index(name) // 4 for name, line in names.items()}


def defined():
    classes = [kind for kind in vars(kp_middleware.errors).values() if isinstance(kind, type)]
    ours = [kind for kind in classes if issubclass(kind, kp_middleware.errors.KnowledgePulseError)]
    return {kind.__name__: len(kind.__mro__) - len(Exception.__mro__) - 1 for kind in ours}


def test_the_tree_is_as_it_is_drawn():
    assert drawn() == defined()


@pytest.mark.parametrize(
    ("error", "words", "facts"),
    [
        (
            kp_middleware.errors.MissingExtraError("langchain"),
            'this needs more packages: pip install "kp-middleware[langchain]"',
            {"extra": "langchain"},
        ),
        (
            kp_middleware.errors.DatabaseError("kp.db", "is full", "make room"),
            "kp.db: is full; make room",
            {"path": Path("kp.db"), "remedy": "make room"},
        ),
        (
            kp_middleware.errors.RedactionError("too_deep", "steps.0.input"),
            "too_deep at steps.0.input",
            {"reason": "too_deep", "where": "steps.0.input"},
        ),
        (
            kp_middleware.errors.RedactionError("too_large"),
            "too_large",
            {"reason": "too_large", "where": ""},
        ),
        (
            kp_middleware.errors.RegistryUnavailableError(
                "slow down", status=429, retry_after_s=2.5
            ),
            "slow down",
            {"status": 429, "retry_after_s": 2.5},
        ),
        (
            kp_middleware.errors.RegistryRejectedError(400, "no steps"),
            "the registry answered 400: no steps",
            {"status": 400, "reason": "no steps"},
        ),
        (
            kp_middleware.errors.RegistryForbiddenError(401, "dead key", "register again"),
            "dead key; register again",
            {"status": 401, "remedy": "register again"},
        ),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, Exception) else "",
)
def test_an_error_says_what_to_do_and_holds_the_facts(error, words, facts):
    assert str(error) == words
    assert {name: getattr(error, name) for name in facts} == facts
