"""The import of the adapter: its needs, its cost and the variables that switch it on."""

import json
import subprocess
import sys
from pathlib import Path


def run(program, *given):
    return subprocess.run(
        [sys.executable, "-c", program, *given],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent,
    )


MISSING = """
import sys
sys.modules["langchain_core"] = None
try:
    import kp_langchain
except Exception as error:
    print(type(error).__name__, error)
"""


def test_case_33_importing_the_adapter_without_langchain_says_what_to_install():
    assert run(MISSING).stdout.strip() == (
        'MissingExtraError this needs more packages: pip install "kp-middleware[langchain]"'
    )


WITHOUT_LANGGRAPH = """
import sys
import kp_langchain
heavy = {"fastembed", "langchain", "langgraph", "numpy", "onnxruntime", "sqlite_utils"}
print(sorted(heavy & set(sys.modules)))

sys.modules["langgraph"] = None
from langchain_core.runnables import RunnableLambda
from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse
from scripted_models import ScriptedModel, answer_of

with KnowledgePulse(embedder=None) as kp:
    chain = RunnableLambda(str) | ScriptedModel(turns=[answer_of("hi")])
    chain.invoke("go", {"callbacks": [KPCallbackHandler(kp)]})
    print(kp.flush())
"""


def test_case_31_nothing_heavy_is_imported_and_langgraph_need_not_be_there():
    imported, backlog = run(WITHOUT_LANGGRAPH).stdout.splitlines()

    assert imported == "[]"
    assert backlog == "Backlog(unscored=0, unsent=0)"


IN_EACH = """
import json, os, sys
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from kp_middleware import KnowledgePulse

for environment in json.loads(sys.argv[1]):
    if os.fork() == 0:
        os.environ.update(environment)
        import kp_langchain
        assert KnowledgePulse._default is None, "a pipeline was made before the first run"
        FakeListChatModel(responses=["Paris"]).invoke("go")
        made = KnowledgePulse._default
        print("recorded" if made and made.flush().unscored == 0 else "nothing", flush=True)
        os._exit(0)
    os.wait()
"""
ENVIRONMENTS = [
    ({}, "nothing"),
    ({"KP_TRACING": "true"}, "recorded"),
    ({"KP_TRACING": "1"}, "recorded"),
    ({"KP_TRACING": "false"}, "nothing"),
    ({"KP_TRACING": "true", "KP_ENABLED": "false"}, "nothing"),
    ({"KP_TRACING": "maybe"}, "nothing"),
]


def test_the_environment_switches_on(tmp_path):
    paths = [tmp_path / str(number) for number in range(len(ENVIRONMENTS))]
    environments = [
        {"KP_DB": str(path), "KP_EMBEDDER": "none", **environment}
        for path, (environment, _) in zip(paths, ENVIRONMENTS, strict=True)
    ]

    ran = run(IN_EACH, json.dumps(environments))

    done = [what for _, what in ENVIRONMENTS]
    assert ran.stdout.split() == done
    assert [path.exists() for path in paths] == [what == "recorded" for what in done]
    assert ran.stderr.splitlines() == [
        "KP_TRACING must be true or false, got 'maybe'; tracing is off"
    ]
