"""Little tasks of eight kinds, each done by one tool call: those of the past, and new ones."""

import random
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple


class Tool(NamedTuple):
    """A tool as a model is told of it, with the types of its arguments."""

    name: str
    about: str
    arguments: dict[str, str]


class Task(NamedTuple):
    """A task in words, and the only right call."""

    kind: str
    words: str
    arguments: dict[str, Any]


TOOLS: Final = {
    "money": Tool(
        "convert_money",
        "Convert an amount of money.",
        {"amount": "number", "source": "string", "target": "string"},
    ),
    "timer": Tool("start_timer", "Start a timer.", {"minutes": "integer", "label": "string"}),
    "light": Tool("set_light", "Set a lamp.", {"room": "string", "percent": "integer"}),
    "word": Tool("look_up_word", "Look a word up.", {"word": "string", "language": "string"}),
    "image": Tool(
        "resize_image",
        "Resize a picture.",
        {"file": "string", "width": "integer", "height": "integer"},
    ),
    "train": Tool(
        "find_trains",
        "Find trains.",
        {"origin": "string", "destination": "string", "seats": "integer"},
    ),
    "alarm": Tool("set_alarm", "Set an alarm.", {"time": "string", "day": "string"}),
    "parcel": Tool("track_parcel", "Track a parcel.", {"number": "string"}),
}

_WORDS: Final = {  # the first of the past, the others of new tasks
    "money": (
        "How many {target_name} are {amount} {source_name}?",
        "I have {amount} {source_name}. What is that in {target_name}?",
        "Exchange {amount} {source_name} for {target_name}, please.",
    ),
    "timer": (
        "Start a timer of {minutes} minutes for the {label}.",
        "The {label} needs {minutes} minutes. Tell me when it is over.",
        "Time the {label}: {minutes} minutes from now.",
    ),
    "light": (
        "Set the light in the {room} to {percent} percent.",
        "Make the {room} lamp {percent} percent bright.",
        "{percent} percent of light is enough in the {room}.",
    ),
    "word": (
        "What does the {language} word {word} mean?",
        "I read {word} in a {language} book. Explain it to me.",
        "Tell me the meaning of {word}, it is {language}.",
    ),
    "image": (
        "Resize {file} to {width} by {height} pixels.",
        "I need {file} with a width of {width} and a height of {height}.",
        "Make {file} {width} wide and {height} high.",
    ),
    "train": (
        "Find trains from {origin} to {destination} for {seats} people.",
        "{seats} of us travel from {origin} to {destination} by train.",
        "We need {seats} seats on a train to {destination}, starting in {origin}.",
    ),
    "alarm": (
        "Wake me at {hour} {half} on {day}.",
        "I have to get up at {hour} {half} this {day}.",
        "{day} I must be awake by {hour} {half}.",
    ),
    "parcel": (
        "Where is parcel {digits}?",
        "My parcel has the number {digits}. Has it arrived?",
        "I still wait for {digits}, a parcel.",
    ),
}
_MONEY: Final = {
    "euros": "EUR",
    "dollars": "USD",
    "yen": "JPY",
    "pounds": "GBP",
    "francs": "CHF",
    "rupees": "INR",
    "pesos": "MXN",
    "kroner": "NOK",
}
_LABELS: Final = (
    "eggs",
    "pasta",
    "tea",
    "bread",
    "laundry",
    "pizza",
    "rice",
    "meeting",
    "workout",
    "nap",
    "soup",
    "cake",
    "chess game",
    "bath",
)
_ROOMS: Final = (
    "kitchen",
    "bedroom",
    "hall",
    "office",
    "garage",
    "bathroom",
    "attic",
    "cellar",
    "nursery",
    "library",
    "studio",
    "porch",
)
_FOREIGN: Final = (
    ("Haus", "German"),
    ("chien", "French"),
    ("libro", "Spanish"),
    ("acqua", "Italian"),
    ("fjord", "Norwegian"),
    ("saudade", "Portuguese"),
    ("Fernweh", "German"),
    ("dépaysement", "French"),
    ("sobremesa", "Spanish"),
    ("abbiocco", "Italian"),
    ("lagom", "Swedish"),
    ("hygge", "Danish"),
    ("sisu", "Finnish"),
    ("kilig", "Tagalog"),
)
_FILES: Final = (
    "cat.png",
    "team.jpg",
    "logo.png",
    "map.gif",
    "house.jpg",
    "banner.png",
    "scan.tiff",
    "avatar.png",
    "beach.jpg",
    "poster.png",
    "menu.jpg",
    "icon.gif",
)
_CITIES: Final = (
    "Berlin",
    "Paris",
    "Vienna",
    "Rome",
    "Oslo",
    "Madrid",
    "Zurich",
    "Prague",
    "Lyon",
    "Milan",
    "Porto",
    "Ghent",
)
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _money(luck: random.Random) -> dict[str, Any]:
    source, target = luck.sample(sorted(_MONEY), 2)
    return {
        "amount": luck.randrange(10, 990, 5),
        "source": _MONEY[source],
        "target": _MONEY[target],
        "source_name": source,
        "target_name": target,
    }


def _alarm(luck: random.Random) -> dict[str, Any]:
    hour, is_late, day = luck.randrange(1, 12), luck.random() < 0.5, luck.choice(_DAYS)
    return {
        "time": f"{hour + 12 * is_late:02}:00",
        "day": day,
        "hour": hour,
        "half": "pm" if is_late else "am",
    }


def _parcel(luck: random.Random) -> dict[str, Any]:
    number = luck.randrange(1000, 99999)
    return {"number": f"PK-{number:06}", "digits": number}


def _train(luck: random.Random) -> dict[str, Any]:
    origin, destination = luck.sample(_CITIES, 2)
    return {"origin": origin, "destination": destination, "seats": luck.randrange(2, 9)}


def _word(luck: random.Random) -> dict[str, Any]:
    word, language = luck.choice(_FOREIGN)
    return {"word": word, "language": language}


_VALUES: Final[dict[str, Callable[[random.Random], dict[str, Any]]]] = {
    "money": _money,
    "timer": lambda luck: {"minutes": luck.randrange(3, 60), "label": luck.choice(_LABELS)},
    "light": lambda luck: {"room": luck.choice(_ROOMS), "percent": luck.randrange(5, 100, 5)},
    "word": _word,
    "image": lambda luck: {
        "file": luck.choice(_FILES),
        "width": luck.randrange(100, 2000, 20),
        "height": luck.randrange(100, 2000, 20),
    },
    "train": _train,
    "alarm": _alarm,
    "parcel": _parcel,
}


def tasks(seed: int, each: int, *, of_the_past: bool) -> Iterator[Task]:
    """Yield so many tasks of each kind; those of the past are worded otherwise than new ones."""
    luck = random.Random(seed)
    for _ in range(each):
        for kind, values in _VALUES.items():
            given = values(luck)
            wordings = _WORDS[kind][:1] if of_the_past else _WORDS[kind][1:]
            words = luck.choice(wordings).format(**given)
            yield Task(kind, words, {name: given[name] for name in TOOLS[kind].arguments})
