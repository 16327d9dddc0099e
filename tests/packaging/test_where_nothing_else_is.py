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
    """Types a command of Python in an empty folder; gives what it printed."""

    def type_in(python, *arguments):
        ran = subprocess.run(
            [python, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return ran.stdout if ran.returncode == 0 else ran.stdout + ran.stderr

    return type_in


@pytest.fixture(params=["alone", "with_extras"])
def python(request):
    """The Pythons of both environments."""
    return request.getfixturevalue(request.param)


def test_what_is_imported_is_the_wheel_with_every_public_name_and_no_requirement_is_missing(
    python, type_in
):
    imports = "from kp_middleware import *; from kp_middleware.testing import *"

    place = type_in(python, "-c", f"{imports}; import kp_middleware as kp; print(kp.__file__)")

    assert place.startswith(str(python.parents[1]))
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


def test_without_langchain_the_adapter_names_its_extra(alone, type_in):
    assert 'pip install "kp-middleware[langchain]"' in type_in(alone, "-c", "import kp_langchain")


@pytest.mark.parametrize(("command", "extra"), [("ui", "ui"), ("demo", "langchain")])
def test_without_its_extra_a_command_names_it(alone, type_in, command, extra):
    type_in(alone, "-c", RECORDING)

    told = type_in(alone.parent / "kp-middleware", "--db", "kp.db", command)

    assert f'pip install "kp-middleware[{extra}]"' in told


def test_with_its_extras_the_adapter_records_and_datasette_has_our_pages(with_extras, type_in):
    assert type_in(with_extras, "-c", AGENT) == ""

    command = with_extras.parent / "kp-middleware"
    shown = type_in(command, "--db", "kp.db", "show", "@last", "--json")
    plugins = type_in(with_extras, "-m", "datasette", "plugins")

    assert json.loads(shown)["framework"] == "langchain"
    assert [plugin["name"] for plugin in json.loads(plugins)] == ["kp-middleware"]


def test_a_user_s_type_checker_sees_our_types(alone, type_in, tmp_path):
    (tmp_path / "program.py").write_text(USER)
    mypy = ("-m", "mypy", "--strict", "--python-executable", alone, "program.py")

    told = type_in(sys.executable, *mypy)

    assert 'incompatible type "int"; expected "str | None"' in told
    assert 'Revealed type is "int"' in told
    assert "Found 1 error" in told
