"""Measure the true success of the runs that leave by a share, through the whole pipeline.

    python benchmarks/gate_pipeline.py [shuffles]

Submits the open recorded airline runs, saying nothing of how they ended, with the real model, and
answers by ``kp.feedback`` for the first so many that would leave: how many more of those that left
succeeded than of all. Runs 1 to 20 are not counted.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from novelty import recorded

from kp_middleware import KnowledgePulse
from kp_middleware.embedding import DEFAULT_EMBEDDER

DATA = Path(__file__).parents[2] / "shared" / "data"
AFTER = 20


class CachingEmbedder:
    """The real model, which embeds no text twice."""

    def __init__(self) -> None:
        self.name = DEFAULT_EMBEDDER.name
        self._known: dict[str, np.ndarray] = {}

    def embed(self, text: str, /) -> np.ndarray:
        if text not in self._known:
            self._known[text] = DEFAULT_EMBEDDER.embed(text)
        return self._known[text]


def forwarded(runs, answers, embedder):
    """Return which runs went, in this order."""
    went = []
    with TemporaryDirectory() as folder:
        db = Path(folder) / "kp.db"
        with KnowledgePulse(db=db, embedder=embedder, sync=True, threshold="top 20%") as kp:
            for trace, success in runs:
                kp.submit(trace)
                decided = kp.run(trace.id).scoring.decision == "forward"
                went.append(decided)
                if decided and answers:
                    answers -= 1
                    kp.feedback(trace.id, success=success)
    return np.array(went)


def without_outcome(trace):
    """Return a run of which nobody has said how it ended."""
    metadata = trace.metadata.model_copy(update={"success": True})
    return trace.model_copy(update={"metadata": metadata})


def main() -> None:
    shuffles = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    found, success = recorded(DATA, "output_summary")
    runs, success = [without_outcome(run.trace) for run in found], np.array(success)
    chance, embedder = np.random.default_rng(1), CachingEmbedder()
    print(f"airline, top 20%, {len(runs)} runs, {success[AFTER:].mean():.2f} succeeded")
    for answers in (0, 10, 20, 40):
        gains, shares = [], []
        for turn in range(1 + shuffles):
            order = chance.permutation(len(runs)) if turn else np.arange(len(runs))
            went = forwarded([(runs[at], bool(success[at])) for at in order], answers, embedder)
            ended = success[order][AFTER:]
            gains.append(ended[went[AFTER:]].mean() - ended.mean())
            shares.append(went.mean())
        print(f"  {answers:2} reviews: recorded {gains[0]:+.3f}, share {shares[0]:.3f}", end="")
        if shuffles:
            print(f"; shuffled {np.mean(gains[1:]):+.3f}, share {np.mean(shares[1:]):.3f}", end="")
        print(flush=True)


if __name__ == "__main__":
    main()
