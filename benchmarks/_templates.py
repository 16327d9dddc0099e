"""Tasks that differ by a detail alone: a city, a name, a number, a service.

A kind has wordings for each deed, and values for their slots. A task is a deed with its values; it
is done several times, each time in another wording.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from random import Random
from types import MappingProxyType
from typing import Final, NamedTuple

import _run_texts as texts
from _runs import TASKS, Run, RunBuilder

TRIALS: Final = 3
NUMBERS: Final = tuple(str(number) for number in range(101, 190))
CITIES: Final = (
    *("Oslo", "Rome", "Paris", "Lisbon", "Vienna"),
    *("Madrid", "Dublin", "Prague", "Athens", "Berlin"),
)
COUNTRIES: Final = (
    *("Norway", "Italy", "France", "Portugal"),
    *("Austria", "Spain", "Ireland", "Greece"),
)
QUARTERS: Final = ("Q1", "Q2", "Q3", "Q4")
SERVICES: Final = (
    *("checkout", "search", "billing", "catalog", "scheduler"),
    *("inventory", "gateway", "mailer", "profile"),
)
PEOPLE: Final = (
    *("Anna Keller", "Tom Brandt", "Mia Rossi", "Paul Novak", "Lena Fischer"),
    *("Omar Haddad", "Sara Lind", "Ivan Petrov", "Julia Meyer"),
)


class Kind(NamedTuple):
    """Tasks of one kind.

    Attributes:
        deeds: The wordings of each: ``{a}`` and ``{b}`` are of the task, ``{n}`` and ``{m}`` are
            numbers of this run alone.
        a, b: The values of the slots.
        later: What is said in a second turn.
        around: What stands around each task; ``{task}`` is its place.
    """

    deeds: tuple[tuple[str, ...], ...]
    a: tuple[str, ...] = ("",)
    b: tuple[str, ...] = ("",)
    later: tuple[str, ...] = ()
    around: str = "{task}"


def runs_of(kind: Kind, seed: int = 0) -> Iterator[Run]:
    """Return the same runs for the same seed, in a random order."""
    random = Random(seed)
    every = [*product(range(len(kind.deeds)), kind.a, kind.b)]
    tasks = [one for one in every if one[1] != one[2] or not one[1]]
    tasks = random.sample(tasks, min(TASKS, len(tasks)))
    trials = max(TRIALS, 3 * TASKS // len(tasks))
    wordings = {deed: random.sample(told, len(told)) for deed, told in enumerate(kind.deeds)}
    told = [
        _run(random, kind, task, wordings[task[0]][trial % len(wordings[task[0]])])
        for trial in range(trials)
        for task in tasks
    ]
    return iter(random.sample(told, len(told)))


def _run(random: Random, kind: Kind, task: tuple[int, str, str], wording: str) -> Run:
    deed, a, b = task
    notes = RunBuilder(random, f"{deed}/{a}/{b}", "output_summary")
    numbers = {name: str(random.randint(11, 9999)) for name in "nm"}
    asked = wording.format(a=a, b=b, **numbers)
    notes.thought(notes.pick(("Let me see.", "I begin with an overview.", "First the data.")))
    for tool in random.choices(("look_up", "list", "check", "read", "apply"), k=5):
        notes.tool(tool, {"page": random.randint(1, 9**6)}, f"row {random.randint(1, 9**6)}: ok")
    if kind.later:
        notes.human(notes.pick(kind.later, a=a, b=b, **numbers))
    notes.thought(notes.pick(("Done.", "That is all.", "It is done.")))
    return notes.run(kind.around.replace("{task}", asked), asked=asked)


_PROMPT: Final = "\n".join(
    f"{at}. {rule}" for at, rule in enumerate(texts.INSTRUCTIONS * 11, start=1)
)
_BANK: Final = Kind(
    (
        ("Block my {a} card.", "Please freeze the {a} card, I lost it.", "My {a} card is gone."),
        ("What is the limit of my {a} card?", "How much can I spend on the {a} card?"),
        ("Raise the limit of the {a} card.", "I need to spend more with my {a} card."),
        ("I forgot the PIN of my {a} card.", "Send me a new PIN for the {a} card."),
        ("There is a charge on my {a} card that I do not know.", "Dispute a {a} card payment."),
    ),
    ("credit", "debit", "business", "travel", "student"),
)
_SERVICE: Final = Kind(
    (
        ("Restart the {a} service.", "{a} hangs, restart it.", "Please bounce {a}."),
        ("Roll {a} back to the last release.", "Undo the latest deploy of {a}.", "Revert {a}."),
        ("Scale {a} up.", "{a} needs more replicas.", "Add instances to the {a} service."),
        ("Why is {a} slow?", "Find out what slows {a} down.", "{a} has a high latency, look."),
        ("Rotate the keys of {a}.", "Renew the secrets that {a} uses.", "{a} needs new keys."),
    ),
    SERVICES,
)
_EVERYDAY: Final = (
    ("Plan my meals for the week.", "What shall I cook these seven days?", "Make a menu, please."),
    ("Find a plumber nearby.", "The sink leaks, who can come?", "I need somebody for my pipes."),
    ("Write a birthday card for grandma.", "A few warm lines for my grandmother turning 80."),
    ("Sort my photos of last summer.", "Put the holiday pictures in order.", "Tidy my pictures."),
    ("Remind me to water the plants.", "Do not let me forget the flowers.", "Plants need water!"),
    ("Compare electricity tariffs.", "Which power provider is cheapest?", "Cut my power bill."),
    ("Book a table for two tonight.", "We want to eat out this evening.", "Reserve a restaurant."),
    ("Cancel my gym membership.", "I want to quit the fitness club.", "End the contract, gym."),
    ("Renew my passport.", "My passport runs out, what now?", "I need new travel documents."),
    ("Draft a cover letter.", "Help me apply for the job.", "Write why they should hire me."),
    ("Find a gift for a ten-year-old.", "What do I give my nephew?", "A present for a boy."),
    ("Translate the lease into English.", "What does my rental contract say?", "Lease, English."),
    ("Make a packing list for skiing.", "What do I take to the snow?", "Pack for the slopes."),
    ("File my tax return.", "Do my taxes for last year.", "Help me with the income tax form."),
    ("Fix the printer.", "My printer prints nothing.", "Paper jam, or what is it?"),
    ("Learn ten Spanish verbs.", "Teach me some Spanish words.", "Quiz me on verbs."),
    ("Find the cheapest train to work.", "Which monthly ticket is best?", "Commute for less."),
    ("Summarise the school newsletter.", "What do parents have to know?", "School news, short."),
    ("Plant a small herb garden.", "Which herbs grow on my balcony?", "Grow basil and mint."),
    ("Back up my phone.", "Save all that is on my mobile.", "Copy my phone before it breaks."),
)
KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "flights between cities": Kind(
            (
                (
                    "Book a flight from {a} to {b}.",
                    "I want to fly from {a} to {b} next week.",
                    "Find me the cheapest ticket {a} - {b}.",
                ),
            ),
            CITIES,
            CITIES,
            ("In May, one bag, please.", "A window seat from {a}.", "I have to be in {b} by noon."),
        ),
        "figure of a country": Kind(
            (
                (
                    "What was the revenue in {a} in {b}?",
                    "Give me {b} sales for {a}.",
                    "How much did we sell in {a} during {b}?",
                ),
            ),
            COUNTRIES,
            QUARTERS,
        ),
        "service": _SERVICE,
        "service, prompt": _SERVICE._replace(around=f"{_PROMPT}\nRequest: {{task}}"),
        "tickets": Kind(
            (
                ("Close ticket {a}.", "Ticket {a} is done, close it."),
                ("Who works on ticket {a}?", "Tell me the assignee of ticket {a}."),
                ("Summarise ticket {a}.", "What is ticket {a} about?"),
            ),
            NUMBERS,
        ),
        "person": Kind(
            (
                ("Send {a} the minutes.", "Mail the minutes of the meeting to {a}."),
                ("Set up a call with {a}.", "I have to talk to {a}, find a time."),
                ("Add {a} to the project.", "Give {a} access to our project."),
                ("Remind {a} of the report.", "Ask {a} where the report is."),
            ),
            PEOPLE,
        ),
        "bank": _BANK,
        "bank, prompt": _BANK._replace(around=f"{_PROMPT}\nCustomer: {{task}}"),
        "bank, JSON": _BANK._replace(
            around='{"locale": "en-GB", "channel": "chat", "version": 3, "message": "{task}"}'
        ),
        "sums": Kind(
            (
                ("What is {n} percent of {m}?", "Take {n} % of {m}."),
                ("Convert {n} miles to kilometres.", "How many kilometres are {n} miles?"),
                ("What is the square root of {n}?", "Take the root of {n}."),
                ("Split a bill of {n} among {m} people.", "{m} people share {n}: how much each?"),
                ("Interest on {n} at {m} for a year?", "What do {n} bear in a year at {m}?"),
                ("Is {n} a prime number?", "Check whether {n} is prime."),
                ("Add {n} and {m}.", "What is the sum of {n} and {m}?"),
                ("How many days are {n} hours?", "Turn {n} hours into days."),
            )
        ),
        "everyday": Kind(_EVERYDAY),
        "recipes": Kind(
            (
                (
                    "Find a recipe for {b} {a}.",
                    "How do I cook {a} that is {b}?",
                    "I would like to make {b} {a} tonight.",
                ),
                (
                    "Write the shopping list for {b} {a}.",
                    "What do I have to buy for {a}, {b}?",
                    "Ingredients of {b} {a}, please.",
                ),
                (
                    "Which wine goes with {b} {a}?",
                    "What do we drink with {a} ({b})?",
                    "Suggest a bottle for {b} {a}.",
                ),
                (
                    "How many calories has {b} {a}?",
                    "Is {b} {a} healthy? Give me the numbers.",
                    "Nutrition facts of {a}, {b}.",
                ),
            ),
            ("lasagne", "curry", "risotto", "pancakes", "chili", "ramen"),
            ("vegan", "gluten-free", "quick", "cheap", "spicy"),
            ("For {n} people.", "My oven is broken.", "The {a} must be ready by seven."),
        ),
        "contracts": Kind(
            (
                (
                    "What does the contract with {a} say about {b}?",
                    "Look up {b} in the agreement with {a}.",
                    "Our deal with {a}: find the clause on {b}.",
                ),
                (
                    "Redraft the part on {b} of the {a} contract.",
                    "Write a better {b} clause for {a}.",
                    "Propose new wording on {b} to {a}.",
                ),
                (
                    "Does {a} keep to what we agreed on {b}?",
                    "Check whether {a} breaks the {b} clause.",
                    "Has {a} met its duties as to {b}?",
                ),
            ),
            ("Siemens", "Nestle", "Airbus", "Volvo", "Philips", "Orange", "Shell"),
            ("liability", "payment", "termination", "warranty", "secrecy"),
        ),
        "alerts": Kind(
            (
                ("{a}: disk full", "{a}: no space left on device", "{a}: filesystem at 99 %"),
                ("{a}: cpu above 95 %", "{a}: load average too high", "{a}: processor saturated"),
                ("{a}: certificate expires", "{a}: tls certificate valid for two more days"),
                ("{a}: replica lags behind", "{a}: replication delay of an hour"),
                ("{a}: health check fails", "{a}: no answer from the health endpoint"),
            ),
            tuple(f"{n}-{i:02}" for n in ("db", "web", "cache") for i in (1, 2, 3)),
            around=(
                '{"source": "monitor", "severity": "critical", "team": "platform",'
                ' "alert": "{task}"}'
            ),
        ),
        "packages": Kind(
            (
                (
                    "Bump {a} in {b} to the newest version.",
                    "{b} still has an old {a}, upgrade it.",
                    "Upgrade {a} for {b}.",
                ),
                (
                    "Remove {a} from {b}.",
                    "We do not need {a} in {b} any more.",
                    "Drop the dependency {b} has on {a}.",
                ),
                (
                    "Is {a} in {b} vulnerable?",
                    "Audit the {a} that {b} uses.",
                    "Look for known holes of {a} in {b}.",
                ),
            ),
            ("numpy", "requests", "jinja2", "urllib3", "pydantic", "pillow"),
            ("backend", "website", "pipeline", "worker", "sdk"),
        ),
        "hotels": Kind(
            (
                (
                    "Reserve a room at the {a} in {b}.",
                    "I need a bed in {b}, the {a} if possible.",
                    "Two nights at {a}, {b}, please.",
                ),
                (
                    "Cancel my stay at the {a} in {b}.",
                    "I will not come to the {a}, {b}; cancel.",
                    "Call off the room in {b} at the {a}.",
                ),
                (
                    "Does the {a} in {b} have parking?",
                    "Where can I leave my car at the {a}, {b}?",
                    "Parking near the {a} in {b}?",
                ),
            ),
            ("Hilton", "Ibis", "Savoy", "Grand", "Plaza", "Astoria"),
            ("Lyon", "Turin", "Porto", "Graz", "Bonn"),
            ("It is for two.", "We arrive late.", "My name is {n} Smith."),
        ),
    }
)
