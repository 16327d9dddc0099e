"""What importing the adapter costs and needs."""

import subprocess
import sys
from pathlib import Path

import pytest

MISSING = """
import sys
sys.modules["langchain_core"] = None
try:
    import kp_langchain
except Exception as error:
    print(type(error).__name__, error)
"""

LIGHT = """
import sys
import kp_langchain
heavy = {"fastembed", "langchain", "langgraph", "numpy", "onnxruntime", "sqlite_utils"}
print(sorted(heavy & set(sys.modules)))
"""


WITHOUT_LANGGRAPH = """
import sys
sys.modules["langgraph"] = None
from langchain_core.runnables import RunnableLambda
from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse
from scripted_models import ScriptedModel, says

with KnowledgePulse(embedder=None) as kp:
    chain = RunnableLambda(str) | ScriptedModel(turns=[says("hi")])
    chain.invoke("go", {"callbacks": [KPCallbackHandler(kp)]})
    print(kp.flush())
"""


def output_of(program):
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent,
    )
    return run.stdout.strip()


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (
            MISSING,
            'MissingExtraError this needs more packages: pip install "kp-middleware[langchain]"',
        ),
        (LIGHT, "[]"),
    ],
    ids=["without LangChain it says what to install", "nothing heavy is imported"],
)
def test_case_33_importing_the_adapter(program, said):
    assert output_of(program) == said


def test_case_31_langgraph_need_not_be_there():
    assert output_of(WITHOUT_LANGGRAPH) == "Backlog(unscored=0, unsent=0)"
