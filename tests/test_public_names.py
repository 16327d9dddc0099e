"""Public names, and the cost of importing them."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import kp_middleware
from kp_middleware.database import connect

ROOT = Path(__file__).parents[1]
PROMISED = {
    "KnowledgePulse",
    *("ReasoningTrace", "Step", "Tool", "Metadata", "Task", "Outcome"),
    *("evaluate_value", "aevaluate_value"),
    *("Scorer", "Score", "VectorCache", "MiniLMEmbedder", "Embedder"),
    *("Gate", "GateHistory", "Decision"),
    "current_trace",
    "Settings",
    *("Recalled", "ReviewItem", "Run", "RunSummary", "StepRecord"),
}
MODEL = {"fastembed", "huggingface_hub", "onnx", "onnxruntime", "tokenizers"}
PAGES = {"datasette", "rich", "sqlite_utils"}
FRAMEWORK = {"langchain", "langchain_core", "langchain_core.retrievers", "langgraph", "langsmith"}
HEAVY = (
    *("numpy", "pydantic", "httpx2", "stamina"),
    *sorted(MODEL | PAGES | FRAMEWORK),
)
ALSO_PROMISED = {  # besides: what README and docs have users import from modules
    "kp_langchain": {
        *("KPCallbackHandler", "disable", "enable", "recording_runs"),
        *("KPRecallMiddleware", "KPRetriever", "recall_past_runs"),
    },
    "kp_openai_agents": {"KPTracingProcessor"},
    "kp_otel": {"KPSpanProcessor", "enable"},
    "kp_middleware.confidence": {"Confidence", "Confidences", "Field", "log_probabilities", "unit"},
    "kp_middleware.outcomes": {
        "Judge",
        "OfRun",
        "ReportedOutcome",
        "ToolResult",
        "checks",
        "refusal",
    },
    "kp_middleware.errors": {
        *(
            "KnowledgePulseError",
            "MissingExtraError",
            "SettingsFileError",
            "DatabaseError",
            "SharedLogError",
        ),
        *("TraceNotFoundError", "RedactionError"),
        *("EmbedderError", "EmbedderUnavailableError", "EmbedderNotReadyError"),
        *("RegistryError", "RegistryUnavailableError", "RegistryRejectedError"),
        *("RegistryForbiddenError", "Problem", "ProblemKind"),
    },
    "kp_middleware.export": {
        *("ExportedRun", "Exporter", "OutboxItem", "Receipt", "StepFacts"),
        *("Outbox", "OwnExporter", "Registry", "Sender", "payload"),  # for our own pipeline
    },
    "kp_middleware.testing": {
        *("Answer", "FakeClock", "ListOutbox", "LocalRegistry"),
        *("Fault", "Received", "Row", "StandInEmbedder"),
    },
}
PACKAGES = sorted(
    ".".join(file.relative_to(root).parent.parts)
    for root in (ROOT, ROOT / "adapters")
    for file in root.glob("kp_*/**/__init__.py")
)
ADAPTERS = sorted(file.parent for file in (ROOT / "adapters").glob("*/__init__.py"))


def loaded_by(script):
    """Return the heavy packages that a new Python has loaded after a script."""
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


@pytest.mark.parametrize("name", ALSO_PROMISED)
def test_the_names_of_a_module_for_users_are_those_that_were_promised(name):
    module = import_module(name)

    assert set(module.__all__) == ALSO_PROMISED[name]


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'kp_middleware' has no attribute 'Foo'"):
        _ = kp_middleware.Foo


@pytest.mark.parametrize("package", PACKAGES)
def test_a_front_door_lists_what_it_has_in_order_or_is_shut(package):
    module = import_module(package)
    body = ast.parse(Path(module.__file__).read_text()).body[1:]

    listed = getattr(module, "__all__", [])

    assert bool(listed) == bool(body), "there is more than a docstring, or nothing behind __all__"
    assert listed or "Import its modules" in module.__doc__ or "loaded when" in module.__doc__
    assert [name for name in listed if not hasattr(module, name)] == []
    assert listed == sorted(set(listed), key=as_ruff_sorts)


def test_what_is_private_is_imported_in_its_own_package_alone():
    imported = {
        (package, name)
        for package in PACKAGES
        for file in Path(import_module(package).__file__).parent.glob("*.py")
        for name in imports_of(file)
    }

    assert [(package, name) for package, name in imported if not may_see(package, name)] == []


def test_tests_import_only_what_a_module_lists():
    imported = {name for file in (ROOT / "tests").rglob("*.py") for name in imports_of(file)}
    ours = [name for name in imported if not name.startswith("kp_little_agents.")]  # an example

    assert [name for name in ours if not is_listed(*name.rsplit(".", 1))] == []


def is_listed(module, name):
    return name in getattr(import_module(module), "__all__", ())


def imports_of(file):
    """The dotted names that a file imports from ours, wherever it does."""
    lines = re.findall(r"(?m)^ *from (kp_[\w.]+) import (\([^)]*\)|.+)$", file.read_text())
    return [
        f"{module}.{name}"
        for module, names in lines
        for name in re.findall(r"(\w+)(?: as \w+)?", names)
    ]


def may_see(package, name):
    """Return whether a dotted name is private to the package itself or to one around it."""
    parts = name.split(".")
    private = [place for place, part in enumerate(parts) if part.startswith("_")]
    owners = [".".join(parts[:place]) for place in private]
    return all(f"{package}.".startswith(f"{owner}.") for owner in owners)


def as_ruff_sorts(name):
    """Constants first, then classes, then functions."""
    return (not name.isupper(), not name[0].isupper(), name)


def test_every_public_name_is_there_without_the_framework_the_model_or_the_pages():
    loaded = loaded_by("from kp_middleware import *")

    assert sorted((FRAMEWORK | MODEL | PAGES) & set(loaded)) == []


def test_importing_the_adapter_loads_neither_the_agents_nor_the_model_nor_the_pages():
    loaded = loaded_by("import kp_langchain")

    assert "langchain_core" in loaded
    assert (
        sorted(
            ({"langchain", "langgraph", "langchain_core.retrievers"} | MODEL | PAGES) & set(loaded)
        )
        == []
    )


def test_what_a_read_only_command_imports_and_opens_loads_nothing_heavy(db):
    modules = ["database", "storage", "locations", "errors", "outbox_items", "rate_limit", "cli"]
    imports = "".join(f"import kp_middleware.{module}\n" for module in modules)
    connect(db).close()

    assert loaded_by(f"{imports}kp_middleware.database.connect({str(db)!r})") == []


def test_every_adapter_is_in_the_wheel_and_the_folder_of_adapters_is_no_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

    assert packages == ["kp_middleware", *(f"adapters/{package.name}" for package in ADAPTERS)]
    assert not (ROOT / "adapters" / "__init__.py").exists()


def test_every_package_says_that_it_is_typed():
    packages = [ROOT / "kp_middleware", *ADAPTERS]

    assert [package for package in packages if not (package / "py.typed").exists()] == []
