"""Senders that share an API key and nothing else send to one registry at its real limits.

    .venv/bin/python benchmarks/senders.py --senders 4 --runs 40

Each sender is a process with folders and a file of its own, as a container has them. It says how
many requests were answered 429, whether the key has lived, and how long it took until all had
arrived.
`--refill` lets the bucket refill faster than the registry's one in two seconds.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from kp_middleware.testing import LocalRegistry

_PLACES: Final = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
_SENDER: Final = """
import sys
from kp_middleware import KnowledgePulse, ReasoningTrace, Step
sender, runs, timeout_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
with KnowledgePulse(embedder=None, threshold=0) as kp:
    for number in range(runs):
        steps = [Step(step_id=0, type="thought", content=f"sender {sender}, run {number}")]
        kp.submit(ReasoningTrace.of("count", steps))
    print(kp.flush(timeout_s).unsent)
"""


def start(
    number: int, runs: int, timeout_s: float, folder: Path, registry: LocalRegistry
) -> "subprocess.Popen[str]":
    """Begin one sender."""
    home = folder / str(number)
    home.mkdir()
    return subprocess.Popen(
        [sys.executable, "-c", _SENDER, str(number), str(runs), str(timeout_s)],
        env={
            **os.environ,
            **dict.fromkeys(_PLACES, str(home)),
            "KP_DB": str(home / "kp.db"),
            "KP_REGISTRY_URL": registry.url,
            "KP_API_KEY": registry.api_key,
            "KP_AGENT_ID": "one-agent",
        },
        stdout=subprocess.PIPE,
        text=True,
    )


def measured(senders: int, runs: int, timeout_s: float, refill_s: float) -> dict[str, object]:
    """Run the senders and return what arrived."""
    with TemporaryDirectory() as folder, LocalRegistry(refill_s=refill_s) as registry:
        began_s = time.monotonic()
        children = [
            start(number, runs, timeout_s, Path(folder), registry) for number in range(senders)
        ]
        unsent = [int(child.communicate()[0] or -1) for child in children]
        return {
            "senders": senders,
            "runs each": runs,
            "arrived": len(registry.documents),
            "unsent": unsent,
            "429s": len(registry.refused_at),
            "key": "revoked" if registry.revoked else "alive",
            "seconds": round(time.monotonic() - began_s, 1),
        }


def main() -> None:
    """Print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--senders", type=int, default=4)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--timeout", type=float, default=900.0)
    parser.add_argument("--refill", type=float, default=2.0)
    said = parser.parse_args()
    print(json.dumps(measured(said.senders, said.runs, said.timeout, said.refill), indent=2))


if __name__ == "__main__":
    main()
