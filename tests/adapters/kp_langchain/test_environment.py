"""What the environment switches on when the adapter is imported."""

import subprocess
import sys

import pytest

AGENT = """
import sys
import kp_langchain
from kp_middleware import KnowledgePulse
assert KnowledgePulse._default is None, "a pipeline was made before the first run"
from langchain_core.language_models.fake_chat_models import FakeListChatModel
FakeListChatModel(responses=["Paris"]).invoke("go")
made = KnowledgePulse._default
print("recorded" if made and made.flush().unscored == 0 else "nothing")
"""


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "nothing"),
        ({"KP_TRACING": "true"}, "recorded"),
        ({"KP_TRACING": "1"}, "recorded"),
        ({"KP_TRACING": "false"}, "nothing"),
        ({"KP_TRACING": "true", "KP_ENABLED": "false"}, "nothing"),
        ({"KP_TRACING": "maybe"}, "nothing"),
    ],
    ids=["not set", "true", "1", "false", "recording is off", "no such word"],
)
def test_the_environment_switches_on(tmp_path, environment, said):
    path = tmp_path / "kp.db"
    settings = {"KP_DB": str(path), "KP_EMBEDDER": "none", "HOME": str(tmp_path)}

    ran = subprocess.run(
        [sys.executable, "-c", AGENT],
        env=settings | environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.strip() == said
    assert path.exists() == (said == "recorded")
    word = environment.get("KP_TRACING")
    told = f"KP_TRACING must be true or false, got {word!r}"
    assert (told in ran.stderr) == (word == "maybe")
