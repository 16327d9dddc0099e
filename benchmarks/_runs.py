"""Generated agent runs of several kinds, for measuring: each task is done several times.

The tasks of a kind are all pairs of a thing and what is done with it, so that a new task shares its
thing with some seen before, what is done with others, and tools and phrases with all. A repeat has
other words, other values and another order.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from random import Random
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

import _run_texts as texts

from kp_middleware import ReasoningTrace, Step, Tool
from kp_middleware.traces import StepType

TRIALS: Final = 3
TASKS: Final = 20

ResultsIn: TypeAlias = Literal["content", "output_summary"]
"""Where tool results are: we record them as ``output_summary``, others as ``content``."""


class Run(NamedTuple):
    """One run.

    Attributes:
        task: Which task it did.
        asked: The task in the words of this run, and nothing else.
        trace: What was recorded.
    """

    task: str
    asked: str
    trace: ReasoningTrace


class RunBuilder:
    """The steps of one run, as they are added.

    Args:
        random: Decides on all wordings and values.
        task: Which task it does.
        results_in: The field of tool results.
    """

    def __init__(self, random: Random, task: str, results_in: ResultsIn) -> None:
        self.random = random
        self._task = task
        self._results_in = results_in
        self._steps: list[Step] = []

    def human(self, text: str) -> None:
        self._add("observation", content=text)

    def thought(self, text: str) -> None:
        self._add("thought", content=text)

    def tool(self, name: str, asked: Mapping[str, object], answered: str) -> None:
        used = Tool(name=name)
        self._add("tool_call", tool=used, input=dict(asked))
        failed: StepType = "error_recovery" if answered.startswith("Error") else "observation"
        self._add(failed, tool=used, **{self._results_in: answered})

    def pick(self, wordings: tuple[str, ...], **slots: str) -> str:
        return self.random.choice(wordings).format(**slots)

    def run(self, objective: str, asked: str | None = None) -> Run:
        """Return a run of all steps so far; the objective is the task, unless that is given."""
        return Run(self._task, asked or objective, ReasoningTrace.of(objective, self._steps))

    def _add(self, kind: StepType, **fields: object) -> None:
        self._steps.append(Step(step_id=len(self._steps), type=kind, **fields))


RunMaker: TypeAlias = Callable[[RunBuilder, int, int], Run]
"""Tells one run: of which thing, and what is done with it."""


def runs_of(kind: str, results_in: ResultsIn, seed: int = 0) -> list[Run]:
    """Return the same runs for the same seed; first runs and repeats are mixed."""
    random = Random(f"{kind} {seed}")
    teller, things, deeds = KINDS[kind]
    pairs = random.sample([*product(range(things), range(deeds))], TASKS)
    told = [
        teller(RunBuilder(random, f"{thing}/{deed}", results_in), thing, deed)
        for thing, deed in pairs * TRIALS
    ]
    return random.sample(told, len(told))


def coding(builder: RunBuilder, thing: int, deed: int) -> Run:
    name, class_name, methods = texts.MODULES[thing]
    asked, found, written = texts.CHANGES[deed]
    path = f"src/{name}.py"
    thing_name = builder.pick((class_name, f"the {name} module", f"{class_name} in {path}"))
    for step in builder.random.sample(("read", "grep", "log"), 2):
        builder.thought(builder.pick(("Let me look at the code first.", "First an overview.")))
        builder.tool(step, {"path": path}, _source(builder, class_name, methods))
    builder.thought(builder.pick(found, thing=thing_name))
    builder.tool("edit", {"path": path}, _diff(builder, path, written))
    for outcome in builder.random.choice((["passed"], ["failed", "passed"])):
        builder.thought(builder.pick(("Now the tests.", "I run the tests.", "Let me check that.")))
        builder.tool("run_tests", {"path": "tests"}, _test_output(builder, name, methods, outcome))
    builder.thought(
        builder.pick(("Done: {what}", "All tests pass. {what}"), what=found[0]).format(
            thing=thing_name
        )
    )
    return builder.run(builder.pick(asked, thing=thing_name))


def research(builder: RunBuilder, thing: int, deed: int) -> Run:
    topic, words = texts.TOPICS[thing]
    question = builder.pick(texts.QUESTIONS[deed], topic=topic)
    builder.thought(builder.pick(("I search for sources.", "I need an overview first.")))
    builder.tool("web_search", {"query": question}, _search_results(builder, topic, words))
    for _ in range(builder.random.randint(2, 4)):
        page = " ".join(_sentences(builder, topic, words, 25))
        builder.tool("open_page", {"url": _url(builder, topic)}, page)
        builder.thought(builder.pick(texts.FINDINGS[deed], topic=topic))
    builder.thought(builder.pick(("I have enough to answer.", "Now the summary.")))
    return builder.run(question)


def only_tools(builder: RunBuilder, thing: int, deed: int) -> Run:
    table = texts.TABLES[thing]
    for tool in builder.random.choices(("sql", "list_files", "read_log", "metrics"), k=8):
        rows = "\n".join(
            f"{builder.random.randint(1, 9**8)} | {table} | {builder.random.random():.4f} | ok"
            for _ in range(12)
        )
        failed = builder.random.random() < 0.1
        builder.tool(tool, {"of": table}, "Error: timeout, try again" if failed else rows)
    return builder.run(builder.pick(texts.JOBS[deed], table=table))


def support(language: texts.Language) -> RunMaker:
    """Make conversations with a customer, who says at first or later what it is about."""

    def build(builder: RunBuilder, thing: int, deed: int) -> Run:
        says, adds, does = language.issues[deed]
        product_name = language.products[thing]
        request = builder.pick(says, product=product_name)
        vague = builder.random.random() < 0.5
        _conversation(builder, language, request if vague else builder.pick(adds))
        if builder.random.random() < 0.5:
            builder.human(builder.pick(adds))
        action = builder.pick(does, product=product_name)
        builder.thought(builder.pick(language.done, deed=action))
        builder.human(builder.pick(language.agrees))
        builder.tool("act", {"what": deed}, _record(builder, product_name))
        builder.thought(builder.pick(language.looks))
        builder.human(builder.pick(language.thanks))
        return builder.run(builder.pick(language.vague) if vague else request, asked=request)

    return build


def _conversation(builder: RunBuilder, language: texts.Language, explained: str) -> None:
    number = f"{builder.random.choice('ABCDEFGH')}{builder.random.randint(10**5, 10**6)}"
    builder.thought(builder.pick(language.ask))
    builder.human(f"{explained} {builder.pick(language.number, number=number)}")
    for look, tool in zip(
        builder.random.sample(language.looks, 3), ("order", "policy", "stock"), strict=True
    ):
        builder.thought(look)
        things = builder.random.sample(language.products, 3)
        builder.tool(tool, {"order": number}, "\n".join(_record(builder, name) for name in things))


def short(builder: RunBuilder, thing: int, deed: int) -> Run:
    """Make a run that fits the window."""
    says, _, does = texts.ENGLISH.issues[deed]
    product_name = texts.ENGLISH.products[thing]
    builder.thought(builder.pick(texts.ENGLISH.looks))
    builder.tool("order", {}, f"order {builder.random.randint(1, 9**6)}, paid by card")
    builder.thought(builder.pick(does, product=product_name))
    return builder.run(builder.pick(says, product=product_name))


def prompted(where: Literal["before", "around"]) -> RunMaker:
    """Make support runs whose task comes with the same 2,000 tokens each time."""
    rules = [f"{at}. {rule}" for at, rule in enumerate(texts.INSTRUCTIONS * 11, start=1)]
    build_support = support(texts.ENGLISH)

    def build(builder: RunBuilder, thing: int, deed: int) -> Run:
        run = build_support(builder, thing, deed)
        split = len(rules) if where == "before" else len(rules) // 2
        lines = [*rules[:split], f"Customer: {run.trace.task.objective}", *rules[split:]]
        return builder.run("\n".join(lines), asked=run.asked)

    return build


def _source(builder: RunBuilder, class_name: str, methods: tuple[str, ...]) -> str:
    lines = ["import logging", "", f"class {class_name}:"]
    for method in builder.random.sample(methods, len(methods)):
        lines += [
            f"    def {method}(self, key, limit={builder.random.randint(1, 999)}):",
            f'        """The {method} of this {class_name.lower()}."""',
            f"        value = self._{builder.random.choice(methods)}.get(key, None)",
            f"        logging.debug('{method} took %d', {builder.random.randint(1, 999)})",
            "        return value",
        ]
    return "\n".join(lines)


def _diff(builder: RunBuilder, path: str, written: tuple[str, ...]) -> str:
    at = builder.random.randint(1, 300)
    added = "\n".join(f"+        {line}" for line in written)
    return f"--- a/{path}\n+++ b/{path}\n@@ -{at},7 +{at},9 @@\n         value = None\n{added}"


def _test_output(builder: RunBuilder, name: str, methods: tuple[str, ...], outcome: str) -> str:
    lines = [f"tests/test_{name}.py::test_{method} PASSED" for method in methods]
    took_s = builder.random.random() * 9
    head = "Error: exit code 1" if outcome == "failed" else "=== test session starts ==="
    last = f"=== {len(methods)} {outcome} in {took_s:.2f}s ==="
    return "\n".join([head, *builder.random.sample(lines, len(lines)), last])


def _search_results(builder: RunBuilder, topic: str, words: tuple[str, ...]) -> str:
    return "\n".join(
        f"{_url(builder, topic)}: {' '.join(_sentences(builder, topic, words, 2))}"
        for _ in range(8)
    )


def _sentences(
    builder: RunBuilder, topic: str, words: tuple[str, ...], count: int
) -> Iterator[str]:
    for _ in range(count):
        one, other = builder.random.sample(words, 2)
        year = builder.random.randint(1990, 2025)
        yield builder.random.choice(
            (
                f"In {year} {one} was measured together with {other}.",
                f"Of all {topic}, {builder.random.randint(1, 99)} % depend on {one}.",
                f"Experts on {topic} disagree whether {one} matters more than {other}.",
                builder.random.choice(texts.CHROME),
            )
        )


def _url(builder: RunBuilder, topic: str) -> str:
    return f"https://site{builder.random.randint(1, 99)}.example/{topic.replace(' ', '-')}"


def _record(builder: RunBuilder, product_name: str) -> str:
    price = builder.random.randint(5, 500)
    day = f"2025-{builder.random.randint(1, 12):02}-{builder.random.randint(1, 28):02}"
    return f'{{"item": "{product_name}", "price": {price}, "ordered": "{day}", "state": "paid"}}'


KINDS: Final[Mapping[str, tuple[RunMaker, int, int]]] = MappingProxyType(
    {
        "coding": (coding, len(texts.MODULES), len(texts.CHANGES)),
        "research": (research, len(texts.TOPICS), len(texts.QUESTIONS)),
        "no human turns": (only_tools, len(texts.TABLES), len(texts.JOBS)),
        "shared prompt before": (prompted("before"), 9, 5),
        "shared prompt around": (prompted("around"), 9, 5),
        "German": (support(texts.GERMAN), 9, 5),
        "Spanish": (support(texts.SPANISH), 9, 5),
        "Japanese": (support(texts.JAPANESE), 9, 5),
        "short": (short, 9, 5),
    }
)
"""How each kind is told, of how many things, with how many deeds."""
