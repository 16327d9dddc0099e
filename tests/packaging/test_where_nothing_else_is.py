"""The wheel works where nothing else is installed, and says which extra something needs."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(300)

RECORDING = """
from kp_middleware import KnowledgePulse
from kp_middleware.testing import StandInEmbedder

with KnowledgePulse(db="kp.db", embedder=StandInEmbedder()) as kp:
    kp.capture(lambda: "Rome")()
"""
AGENT = """
from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse
from kp_middleware.testing import StandInEmbedder
from langchain_core.language_models import FakeListChatModel

with KnowledgePulse(db="kp.db", embedder=StandInEmbedder()) as kp:
    FakeListChatModel(responses=["Rome"]).invoke("Where?", {"callbacks": [KPCallbackHandler(kp)]})
"""
USER = """
from kp_middleware import KnowledgePulse
with KnowledgePulse(domain="finance") as kp:
    kp.feedback(7, success=True)
    reveal_type(kp.stats().scored)
"""


@pytest.fixture
def type_in(tmp_path):
    """Types a command of Python in an empty folder; gives what it printed, if it went well."""

    def type_in(python, *arguments):
        ran = subprocess.run(
            [python, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return ran.stdout if ran.returncode == 0 else ran.stderr

    return type_in


@pytest.fixture(params=["alone", "with_extras"])
def python(request):
    """The Pythons of both environments."""
    return request.getfixturevalue(request.param)


def test_what_is_imported_is_the_wheel(python, type_in):
    place = type_in(python, "-c", "import kp_middleware; print(kp_middleware.__file__)")

    assert place.startswith(str(python.parents[1]))


def test_no_requirement_is_missing(python, type_in):
    assert type_in(python, "-m", "pip", "check") == "No broken requirements found.\n"


def test_the_commands_are_there(python, type_in):
    for command in ("kp-middleware", "kp-mw"):
        assert type_in(python.parent / command, "--help").startswith("Usage: ")
        assert type_in(python.parent / command, "--version").endswith("0.1.0\n")


def test_a_run_is_recorded_scored_and_listed(python, type_in):
    assert type_in(python, "-c", RECORDING) == ""

    listed = json.loads(type_in(python.parent / "kp-middleware", "--db", "kp.db", "list", "--json"))

    assert [run["state"] for run in listed] == ["withheld"]
    assert 0 < listed[0]["score"] < 1


def test_every_public_name_can_be_imported(python, type_in):
    assert (
        type_in(python, "-c", "from kp_middleware import *; from kp_middleware.testing import *")
        == ""
    )


def test_without_langchain_the_adapter_names_its_extra(alone, type_in):
    assert 'pip install "kp-middleware[langchain]"' in type_in(alone, "-c", "import kp_langchain")


@pytest.mark.parametrize(("command", "extra"), [("ui", "ui"), ("demo", "langchain")])
def test_without_its_extra_a_command_names_it(alone, type_in, command, extra):
    type_in(alone, "-c", RECORDING)

    told = type_in(alone.parent / "kp-middleware", "--db", "kp.db", command)

    assert f'pip install "kp-middleware[{extra}]"' in told


def test_with_its_extra_the_adapter_records(with_extras, type_in):
    assert type_in(with_extras, "-c", AGENT) == ""

    shown = type_in(
        with_extras.parent / "kp-middleware", "--db", "kp.db", "show", "@last", "--json"
    )

    assert json.loads(shown)["framework"] == "langchain"


def test_with_its_extra_datasette_has_our_pages(with_extras, type_in):
    plugins = json.loads(type_in(with_extras, "-m", "datasette", "plugins"))

    assert [plugin["name"] for plugin in plugins] == ["kp-middleware"]


def test_a_user_s_type_checker_sees_our_types(alone, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(USER)

    told = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", alone, program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    ).stdout

    assert 'incompatible type "int"; expected "str | None"' in told
    assert 'Revealed type is "int"' in told
    assert "Found 1 error" in told
