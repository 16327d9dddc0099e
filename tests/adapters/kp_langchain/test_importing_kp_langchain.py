"""What importing the adapter costs and needs."""

import subprocess
import sys

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


def output_of(program):
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
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
def test_importing_the_adapter(program, said):
    assert output_of(program) == said
