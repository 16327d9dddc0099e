"""What other programs call by name, and what importing it costs."""

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import kp_middleware
from kp_middleware.database import MIGRATIONS

ROOT = Path(__file__).parents[1]
PROMISED = {
    "KnowledgePulse",
    *("ReasoningTrace", "Step", "Tool", "Metadata", "Task", "Outcome"),
    *("evaluate_value", "aevaluate_value"),
    *("Scorer", "Score", "VectorCache", "MiniLMEmbedder", "Embedder"),
    *("Gate", "Decision"),
    "current_trace",
    "Settings",
}
HEAVY = (
    *("numpy", "pydantic", "pydantic_settings", "fastembed", "onnx", "onnxruntime", "httpx2"),
    *("langchain", "langchain_core", "langgraph", "sqlite_utils", "rich", "stamina"),
)
STAGES = sorted(file.parent.name for file in (ROOT / "kp_middleware").glob("*/__init__.py"))
ADAPTERS = sorted(file.parent for file in (ROOT / "adapters").glob("*/__init__.py"))


def loaded_by(script):
    """Which heavy packages a Python of its own has loaded after a script."""
    tell = f"{script}\nimport sys; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    return subprocess.run(
        [sys.executable, "-c", tell], capture_output=True, text=True, check=True
    ).stdout.split()


def test_the_public_names_are_those_that_were_promised():
    assert set(kp_middleware.__all__) == PROMISED
    assert set(dir(kp_middleware)) == PROMISED
    assert [getattr(kp_middleware, name).__name__ for name in kp_middleware.__all__] == [
        *kp_middleware.__all__
    ]


def test_the_adapter_s_name_is_there():
    assert import_module("kp_langchain").KPCallbackHandler.__name__ == "KPCallbackHandler"


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'kp_middleware' has no attribute 'Foo'"):
        _ = kp_middleware.Foo


@pytest.mark.parametrize(
    "package",
    [
        *(f"kp_middleware.{stage}" for stage in STAGES),
        *(adapter.name for adapter in ADAPTERS),
    ],
)
def test_a_front_door_lists_what_it_has_in_order(package):
    module = import_module(package)

    listed = module.__all__

    assert [name for name in listed if not hasattr(module, name)] == []
    assert listed == sorted(set(listed), key=as_ruff_sorts)


def as_ruff_sorts(name):
    """Constants first, then classes, then functions."""
    return (not name.isupper(), not name[0].isupper(), name)


def test_importing_the_package_loads_nothing_heavy():
    assert loaded_by("import kp_middleware") == []


def test_every_public_name_is_there_without_the_framework_or_the_model():
    loaded = loaded_by("from kp_middleware import *")

    assert not {"langchain", "langchain_core", "langgraph", "fastembed", "onnx"} & set(loaded)


@pytest.mark.parametrize(
    "module", ["database", "storage", "locations", "errors", "parcels", "inspection"]
)
def test_what_a_read_only_command_imports_loads_nothing_heavy(module):
    assert loaded_by(f"import kp_middleware.{module}") == []


def test_opening_a_file_that_is_up_to_date_loads_nothing_heavy(tmp_path):
    opened = f"from kp_middleware.database import connect; connect({str(tmp_path / 'kp.db')!r})"
    loaded_by(opened)

    assert loaded_by(opened) == []


def test_every_adapter_is_in_the_wheel():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

    assert packages == ["kp_middleware", *(f"adapters/{package.name}" for package in ADAPTERS)]


def test_the_folder_of_adapters_is_no_package():
    assert not (ROOT / "adapters" / "__init__.py").exists()


def test_every_package_says_that_it_is_typed():
    packages = [ROOT / "kp_middleware", *ADAPTERS]

    assert [package for package in packages if not (package / "py.typed").exists()] == []


def test_every_migration_is_in_the_list():
    scripts = sorted((ROOT / "kp_middleware" / "migrations").iterdir())

    assert [script.name for script in scripts] == [f"{name}.sql" for name in MIGRATIONS]


def test_the_command_and_the_module_are_the_same():
    ran = subprocess.run(
        [sys.executable, "-m", "kp_middleware", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.startswith("Usage: ")
