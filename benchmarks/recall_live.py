"""Measure whether a digest of a past run helps a real language model, and whether it harms.

    python benchmarks/recall_live.py [new tasks of each kind] [servers] [ways, such as recalled]

A scripted agent does 48 tasks of eight kinds, and a person says that each went well; it does 48
others wrong, and a person says so. Then a small model (`_small_model.py`) does new tasks, worded
otherwise, with one call of eight tools: told nothing; told the run that ``kp.recall`` finds; told
a failed run of the same kind, which the product would never recall; and told a success of another
kind. Each as the product quotes it, in a message before the task. A call is right if the tool and
all arguments are. The weights and the server are packages: building takes minutes, once.
"""

import random
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from math import comb, sqrt
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from _small_model import SmallModel, small_model
from _small_tasks import TOOLS, Task, tasks

from kp_middleware import KnowledgePulse, Run
from kp_middleware.privacy import Policy
from kp_middleware.recall import recalled

WAYS = ("nothing", "recalled", "failed", "unrelated")


class Past(NamedTuple):
    """A recorded run, and what it was called with."""

    kind: str
    run: Run
    called: tuple[str, dict[str, Any]]


class Outcome(NamedTuple):
    """One answer of the model."""

    kind: str
    is_right: bool
    is_right_tool: bool
    is_copied: bool


def record(kp: KnowledgePulse, past: Sequence[Task], luck: random.Random, *, well: bool) -> None:
    """Let a scripted agent do tasks: as they should be done, or with another tool's name."""
    for task in past:
        kind = task.kind if well else luck.choice([one for one in TOOLS if one != task.kind])
        tool = kp.tool(name=TOOLS[kind].name)(lambda **_: "done")

        @kp.capture(name="scripted", objective="words")
        def agent(words: str, tool: Any = tool, task: Task = task) -> str:
            tool(**task.arguments)
            return f"Done: {words}"

        agent(task.words)
        kp.feedback(kp.run("@last").id, success=well)


def outcome_of(model: SmallModel, task: Task, past: Past | None) -> Outcome:
    given = [] if past is None else [("user", digest_of(past.run))]
    called = model.call([*given, ("user", task.words)], [*TOOLS.values()])
    right = (TOOLS[task.kind].name, task.arguments)
    return Outcome(
        task.kind,
        same_call(called, right),
        called[0] == right[0],
        past is not None and not same_call(called, right) and same_call(called, past.called),
    )


def digest_of(run: Run) -> str:
    return recalled(run, Policy()).as_message()


def same_call(one: tuple[str, dict[str, Any]], other: tuple[str, dict[str, Any]]) -> bool:
    """Return True if two calls differ by capitals alone."""
    return one[0] == other[0] and normalized(one[1]) == normalized(other[1])


def normalized(arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.strip().lower() if isinstance(value, str) else value
        for name, value in arguments.items()
    }


def pairings(
    kp: KnowledgePulse, new: Sequence[Task], luck: random.Random
) -> Iterator[tuple[Task, str, Past | None]]:
    """Yield each task with what the model is told in each way."""
    runs = [kp.run(one.id) for one in kp.runs(limit=1000)]
    kinds = {tool.name: kind for kind, tool in TOOLS.items()}
    by_words = {task.words: task.kind for task in tasks(1, 12, of_the_past=True)}
    past = {}
    for run in runs:
        (call,) = (step for step in run.steps if step.type == "tool_call")
        kind = by_words[run.objective]
        past[run.id] = Past(kind, run, (call.tool, call.input))
        assert run.success == (kinds[call.tool] == kind)
    for task in new:
        found = kp.recall(task.words)
        yield task, "nothing", None
        yield task, "recalled", past[found[0].trace_id] if found else None
        alike = [one for one in past.values() if one.kind == task.kind and not one.run.success]
        yield task, "failed", luck.choice(alike)
        others = [one for one in past.values() if one.kind != task.kind and one.run.success]
        yield task, "unrelated", luck.choice(others)


def wilson(share: float, count: int) -> str:
    middle, spread = share + 1.92 / count, 1.96 * sqrt((share * (1 - share) + 0.96 / count) / count)
    return " to ".join(f"{(middle + sign * spread) / (1 + 3.84 / count):.2f}" for sign in (-1, 1))


def sign_test(won: int, lost: int) -> float:
    fewer, count = min(won, lost), won + lost
    return min(1.0, 2 * sum(comb(count, k) for k in range(fewer + 1)) / 2**count)


def print_results(by_way: dict[str, list[Outcome]], fitting: int) -> None:
    base = by_way.get("nothing", [])
    count = len(next(iter(by_way.values())))
    print(f"{count} tasks; a run of the right kind was recalled for {fitting}")
    print(f"{'told':10} right (95 %)          tool  copied  won/lost against nothing")
    for way, outcomes in by_way.items():
        count = len(outcomes)
        right, tool, copied = (sum(column) / count for column in [*zip(*outcomes, strict=True)][1:])
        pairs = [*zip(outcomes, base, strict=False)]
        won = sum(one.is_right > other.is_right for one, other in pairs)
        lost = sum(one.is_right < other.is_right for one, other in pairs)
        span = wilson(right, count)
        p = f"{won}/{lost} p={sign_test(won, lost):.2g}" if way != "nothing" else ""
        print(f"{way:10} {right:.2f} ({span})   {tool:.2f}  {copied:.2f}    {p}")
    for kind in TOOLS:
        counts = (
            f"{way} {sum(one.is_right for one in outcomes if one.kind == kind)}"
            for way, outcomes in by_way.items()
        )
        print(f"  {kind:8} {', '.join(counts)}")


def main() -> None:
    each = int(sys.argv[1]) if len(sys.argv) > 1 else 13
    servers = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    luck = random.Random(3)
    new = [*tasks(2, each, of_the_past=False)]
    past = [*tasks(1, 12, of_the_past=True)]
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        kp = stack.enter_context(KnowledgePulse(db=Path(folder) / "kp.db", sync=True))
        record(kp, past[: len(past) // 2], luck, well=True)
        record(kp, past[len(past) // 2 :], luck, well=False)
        ways = sys.argv[3:] or WAYS
        todo = [one for one in pairings(kp, new, luck) if one[1] in ways]
        models: SimpleQueue[SmallModel] = SimpleQueue()
        for _ in range(servers):
            models.put(stack.enter_context(small_model()))

        def ask(one: tuple[Task, str, Past | None]) -> tuple[str, Outcome]:
            task, way, past = one
            model = models.get()
            try:
                return way, outcome_of(model, task, past)
            finally:
                models.put(model)

        told: dict[str, list[Outcome]] = {way: [] for way in ways}
        with ThreadPoolExecutor(servers) as pool:
            for number, (way, outcome) in enumerate(pool.map(ask, todo), start=1):
                told[way].append(outcome)
                print(f"\r{number} of {len(todo)}", end="", file=sys.stderr, flush=True)
    fitting = sum(
        past is not None and past.kind == task.kind for task, way, past in todo if way == "recalled"
    )
    print_results(told, fitting)


if __name__ == "__main__":
    main()
