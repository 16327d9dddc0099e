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


class Notes:
    """What happens in one run.

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
        """All that was noted; the objective is the task, unless that is given."""
        return Run(self._task, asked or objective, ReasoningTrace.of(objective, self._steps))

    def _add(self, kind: StepType, **fields: object) -> None:
        self._steps.append(Step(step_id=len(self._steps), type=kind, **fields))


Teller: TypeAlias = Callable[[Notes, int, int], Run]
"""Tells one run: of which thing, and what is done with it."""


def runs_of(kind: str, results_in: ResultsIn, seed: int = 0) -> list[Run]:
    """The same runs for the same seed, in an order in which firsts and repeats are mixed."""
    random = Random(f"{kind} {seed}")
    teller, things, deeds = KINDS[kind]
    pairs = random.sample([*product(range(things), range(deeds))], TASKS)
    told = [
        teller(Notes(random, f"{thing}/{deed}", results_in), thing, deed)
        for thing, deed in pairs * TRIALS
    ]
    return random.sample(told, len(told))


def coding(notes: Notes, thing: int, deed: int) -> Run:
    name, class_name, methods = texts.MODULES[thing]
    asked, found, written = texts.CHANGES[deed]
    path = f"src/{name}.py"
    thing_name = notes.pick((class_name, f"the {name} module", f"{class_name} in {path}"))
    for step in notes.random.sample(("read", "grep", "log"), 2):
        notes.thought(notes.pick(("Let me look at the code first.", "First an overview.")))
        notes.tool(step, {"path": path}, _source(notes, class_name, methods))
    notes.thought(notes.pick(found, thing=thing_name))
    notes.tool("edit", {"path": path}, _diff(notes, path, written))
    for outcome in notes.random.choice((["passed"], ["failed", "passed"])):
        notes.thought(notes.pick(("Now the tests.", "I run the tests.", "Let me check that.")))
        notes.tool("run_tests", {"path": "tests"}, _test_output(notes, name, methods, outcome))
    notes.thought(
        notes.pick(("Done: {what}", "All tests pass. {what}"), what=found[0]).format(
            thing=thing_name
        )
    )
    return notes.run(notes.pick(asked, thing=thing_name))


def research(notes: Notes, thing: int, deed: int) -> Run:
    topic, words = texts.TOPICS[thing]
    question = notes.pick(texts.QUESTIONS[deed], topic=topic)
    notes.thought(notes.pick(("I search for sources.", "I need an overview first.")))
    notes.tool("web_search", {"query": question}, _search_results(notes, topic, words))
    for _ in range(notes.random.randint(2, 4)):
        page = " ".join(_sentences(notes, topic, words, 25))
        notes.tool("open_page", {"url": _url(notes, topic)}, page)
        notes.thought(notes.pick(texts.FINDINGS[deed], topic=topic))
    notes.thought(notes.pick(("I have enough to answer.", "Now the summary.")))
    return notes.run(question)


def only_tools(notes: Notes, thing: int, deed: int) -> Run:
    table = texts.TABLES[thing]
    for tool in notes.random.choices(("sql", "list_files", "read_log", "metrics"), k=8):
        rows = "\n".join(
            f"{notes.random.randint(1, 9**8)} | {table} | {notes.random.random():.4f} | ok"
            for _ in range(12)
        )
        failed = notes.random.random() < 0.1
        notes.tool(tool, {"of": table}, "Error: timeout, try again" if failed else rows)
    return notes.run(notes.pick(texts.JOBS[deed], table=table))


def support(language: texts.Language) -> Teller:
    """A conversation with a customer, who says at first or later what it is about."""

    def tell(notes: Notes, thing: int, deed: int) -> Run:
        says, adds, does = language.issues[deed]
        product_name = language.products[thing]
        request = notes.pick(says, product=product_name)
        vague = notes.random.random() < 0.5
        _conversation(notes, language, request if vague else notes.pick(adds))
        if notes.random.random() < 0.5:
            notes.human(notes.pick(adds))
        action = notes.pick(does, product=product_name)
        notes.thought(notes.pick(language.done, deed=action))
        notes.human(notes.pick(language.agrees))
        notes.tool("act", {"what": deed}, _record(notes, product_name))
        notes.thought(notes.pick(language.looks))
        notes.human(notes.pick(language.thanks))
        return notes.run(notes.pick(language.vague) if vague else request, asked=request)

    return tell


def _conversation(notes: Notes, language: texts.Language, explained: str) -> None:
    number = f"{notes.random.choice('ABCDEFGH')}{notes.random.randint(10**5, 10**6)}"
    notes.thought(notes.pick(language.ask))
    notes.human(f"{explained} {notes.pick(language.number, number=number)}")
    for look, tool in zip(
        notes.random.sample(language.looks, 3), ("order", "policy", "stock"), strict=True
    ):
        notes.thought(look)
        things = notes.random.sample(language.products, 3)
        notes.tool(tool, {"order": number}, "\n".join(_record(notes, name) for name in things))


def short(notes: Notes, thing: int, deed: int) -> Run:
    """Fits the window."""
    says, _, does = texts.ENGLISH.issues[deed]
    product_name = texts.ENGLISH.products[thing]
    notes.thought(notes.pick(texts.ENGLISH.looks))
    notes.tool("order", {}, f"order {notes.random.randint(1, 9**6)}, paid by card")
    notes.thought(notes.pick(does, product=product_name))
    return notes.run(notes.pick(says, product=product_name))


def prompted(where: Literal["before", "around"]) -> Teller:
    """Support whose task comes with 2,000 tokens that are the same in all runs."""
    rules = [f"{at}. {rule}" for at, rule in enumerate(texts.INSTRUCTIONS * 11, start=1)]
    tell = support(texts.ENGLISH)

    def told(notes: Notes, thing: int, deed: int) -> Run:
        run = tell(notes, thing, deed)
        split = len(rules) if where == "before" else len(rules) // 2
        lines = [*rules[:split], f"Customer: {run.trace.task.objective}", *rules[split:]]
        return notes.run("\n".join(lines), asked=run.asked)

    return told


def _source(notes: Notes, class_name: str, methods: tuple[str, ...]) -> str:
    lines = ["import logging", "", f"class {class_name}:"]
    for method in notes.random.sample(methods, len(methods)):
        lines += [
            f"    def {method}(self, key, limit={notes.random.randint(1, 999)}):",
            f'        """The {method} of this {class_name.lower()}."""',
            f"        value = self._{notes.random.choice(methods)}.get(key, None)",
            f"        logging.debug('{method} took %d', {notes.random.randint(1, 999)})",
            "        return value",
        ]
    return "\n".join(lines)


def _diff(notes: Notes, path: str, written: tuple[str, ...]) -> str:
    at = notes.random.randint(1, 300)
    added = "\n".join(f"+        {line}" for line in written)
    return f"--- a/{path}\n+++ b/{path}\n@@ -{at},7 +{at},9 @@\n         value = None\n{added}"


def _test_output(notes: Notes, name: str, methods: tuple[str, ...], outcome: str) -> str:
    lines = [f"tests/test_{name}.py::test_{method} PASSED" for method in methods]
    took_s = notes.random.random() * 9
    head = "Error: exit code 1" if outcome == "failed" else "=== test session starts ==="
    last = f"=== {len(methods)} {outcome} in {took_s:.2f}s ==="
    return "\n".join([head, *notes.random.sample(lines, len(lines)), last])


def _search_results(notes: Notes, topic: str, words: tuple[str, ...]) -> str:
    return "\n".join(
        f"{_url(notes, topic)}: {' '.join(_sentences(notes, topic, words, 2))}" for _ in range(8)
    )


def _sentences(notes: Notes, topic: str, words: tuple[str, ...], count: int) -> Iterator[str]:
    for _ in range(count):
        one, other = notes.random.sample(words, 2)
        yield notes.random.choice(
            (
                f"In {notes.random.randint(1990, 2025)} {one} was measured together with {other}.",
                f"Of all {topic}, {notes.random.randint(1, 99)} % depend on {one}.",
                f"Experts on {topic} disagree whether {one} matters more than {other}.",
                notes.random.choice(texts.CHROME),
            )
        )


def _url(notes: Notes, topic: str) -> str:
    return f"https://site{notes.random.randint(1, 99)}.example/{topic.replace(' ', '-')}"


def _record(notes: Notes, product_name: str) -> str:
    price = notes.random.randint(5, 500)
    day = f"2025-{notes.random.randint(1, 12):02}-{notes.random.randint(1, 28):02}"
    return f'{{"item": "{product_name}", "price": {price}, "ordered": "{day}", "state": "paid"}}'


KINDS: Final[Mapping[str, tuple[Teller, int, int]]] = MappingProxyType(
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
