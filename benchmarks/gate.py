"""Measure which runs leave by a share, and how many of them truly succeeded.

    python benchmarks/gate.py [share]

Plays recorded runs of three kinds of agents, whose true end is known, as if nobody had said how
they ended but a person who looks at the first so many that would leave, and half of them at others.
In the order of recording, and as the mean of ten shuffles. Runs 1 to 20 are not counted.
"""

import sys
from bisect import bisect_right, insort
from collections import deque
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kp_middleware.core.evaluation import Ending, RunFacts
from kp_middleware.core.formula import Shape, Signals, Weights
from kp_middleware.core.gates import Ranking, choose, window_size
from kp_middleware.estimate import GaussianProcess, is_trusted

DATA = Path(__file__).parents[2] / "shared" / "data" / "outcomes_open.npz"
WEIGHTS = {
    "airline": Weights(0.20, 0.30, 0.20, 0.30),
    "retail": Weights(0.20, 0.30, 0.20, 0.30),
    "coding": Weights(0.20, 0.30, 0.30, 0.20),
}
AFTER, SHUFFLES, AGE = 20, 10, 200
CLAIMED = 0.8


class Stream(NamedTuple):
    """Runs of one agent, in some order."""

    weights: Weights
    features: np.ndarray
    signals: np.ndarray
    vectors: np.ndarray
    success: np.ndarray

    def ordered(self, order: np.ndarray) -> "Stream":
        """Return the same runs in another order."""
        return Stream(self.weights, *(part[order] for part in self[1:]))

    def novelty(self) -> np.ndarray:
        """Return 1 minus the similarity to the nearest run before; 0.5 of the first."""
        alike = self.vectors @ self.vectors.T
        later = [alike[at, :at].max() for at in range(1, len(alike))]
        return np.clip(1 - np.array([0.5, *later]), 0, 1)


def streams() -> dict[str, Stream]:
    """Return the open streams by name."""
    data = np.load(DATA)
    found = {}
    for name, weights in WEIGHTS.items():
        vectors = data[f"{name}_run_vector"].astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        parts = (data[f"{name}_{part}"] for part in ("features", "signals"))
        found[name] = Stream(weights, *parts, vectors, data[f"{name}_reward"])
    return found


class Reviewer:
    """A person who looks at a few runs and says how they ended."""

    def __init__(self, answers: int, *, at_random: float, chance: np.random.Generator) -> None:
        self._answers, self._at_random, self._chance = answers, at_random, chance

    def looks(self, *, went: bool) -> bool:
        """Return whether the person looks at a run."""
        if not self._answers:
            return False
        looks = went or self._chance.random() < self._at_random
        self._answers -= looks
        return looks


def by_share(stream: Stream, share: float, reviewer: Reviewer) -> np.ndarray:
    """Return which runs go by the share, with the estimate."""
    ranking, told, process = Ranking(window_size(share)), [], None
    went, novelty, solved = [], stream.novelty(), []
    for at, signals in enumerate(stream.signals):
        known = [run for run, _ in told if at - run < AGE]
        if known and (process is None or known != solved or at + 1 >= process.current_until):
            solved = known
            trusted = is_trusted(one for _, one in told if one is not None)
            process = GaussianProcess(
                stream.features[: at + 1],
                *(of[known] for of in (stream.features, stream.vectors, stream.success)),
                is_trusted=trusted,
            )
        said = (
            None
            if process is None or not known
            else process.estimate(stream.features[at], stream.vectors[at])
        )
        measured = Signals(signals[0], novelty[at], signals[1], CLAIMED)
        shape = Shape(2, frozenset(), 1 if signals[2] else 2, 0)  # with a single tool, or not
        p = None if said is None else said.p
        run = RunFacts(shape, Ending(True, CLAIMED), measured=measured, p_success=p)
        key = run.rank_key(stream.weights)
        ahead = ranking.runs_ahead(key)
        is_chosen, credit, _, _ = choose(share, ranking.credit, len(ranking), ahead, 0.0)
        ranking.add(key, chosen=is_chosen, credit=credit)
        went.append(is_chosen)
        if reviewer.looks(went=is_chosen):
            ended = bool(stream.success[at])
            told.append((at, None if said is None else (said.raw, said.base, ended)))
    return np.array(went)


def by_last_scores(stream: Stream, share: float, reviewer: Reviewer) -> np.ndarray:  # noqa: ARG001 - as by_share
    """Return which runs went by the gate of before: the best of the last 500 scores, from 50 on."""
    weights, went, keys, last = stream.weights, [], [], deque(maxlen=500)
    for signals, novelty in zip(stream.signals, stream.novelty(), strict=True):
        measured = Signals(signals[0], novelty, signals[1], CLAIMED)
        score = sum(one * weight for one, weight in zip(measured, weights, strict=True))
        score -= 0.1 * bool(signals[2])
        room = len(keys) - bisect_right(keys, score) < round(share * len(keys), 6)
        went.append(room if len(keys) >= 50 else score >= 0.75)
        insort(keys, score)
        last.append(score)
    return np.array(went)


def main() -> None:
    share = float(sys.argv[1]) if len(sys.argv) > 1 else 0.2
    print(f"the share is {share:.0%}; forwarded: truly succeeded, of how many")
    for name, stream in streams().items():
        late = stream.success[AFTER:]
        print(f"\n{name}: {len(stream.success)} runs, {late.mean():.2f} succeeded")
        print("                        recorded        share   shuffled   share   worst share")
        print_row("before", by_last_scores, stream, share, 0, 0.0)
        for answers in (0, 10, 20, 40):
            print_row(f"{answers} reviews", by_share, stream, share, answers, 0.0)
        for answers in (10, 20, 40):
            print_row(f"{answers}, half random", by_share, stream, share, answers, share)


def print_row(title, gate, stream, share, answers, at_random) -> None:
    """Print a row of the table."""
    chance = np.random.default_rng(1)

    def play(order):
        some = stream.ordered(order)
        reviewer = Reviewer(answers, at_random=at_random, chance=chance)
        went, success = gate(some, share, reviewer), some.success
        late, base = success[AFTER:][went[AFTER:]], success[AFTER:].mean()
        return late, late.mean() - base if len(late) else np.nan, went.mean()

    went, _, kept = play(np.arange(len(stream.success)))
    rest = [play(chance.permutation(len(stream.success))) for _ in range(SHUFFLES)]
    gains, shares = np.array([gain for _, gain, _ in rest]), np.array([of for *_, of in rest])
    worst = shares[np.abs(shares - share).argmax()]
    rate = went.mean() if len(went) else np.nan
    print(
        f"  {title:18}  {rate:.2f} of {len(went):3}         {kept:.3f}    {np.nanmean(gains):+.3f}"
        f"    {shares.mean():.3f}   {worst:.3f}"
    )


if __name__ == "__main__":
    main()
