"""Small tasks of eight kinds, each done by one tool call: past ones, and new ones."""

import random
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple


class Tool(NamedTuple):
    """A tool as the model sees it, with the types of its arguments."""

    name: str
    about: str
    arguments: dict[str, str]


class Task(NamedTuple):
    """A task in words, and the only right call."""

    kind: str
    words: str
    arguments: dict[str, Any]


TOOLS: Final = {
    "units": Tool(
        "convert_units",
        "Convert a measure.",
        {"value": "number", "source": "string", "target": "string"},
    ),
    "word": Tool("translate", "Translate a text.", {"text": "string", "language": "string"}),
    "rain": Tool("get_forecast", "Forecast the weather.", {"city": "string", "day": "string"}),
    "timer": Tool("start_timer", "Start a timer.", {"minutes": "integer"}),
    "song": Tool("play_song", "Play a song.", {"title": "string"}),
    "light": Tool("set_light", "Set a lamp.", {"room": "string", "percent": "integer"}),
    "money": Tool(
        "exchange", "Exchange money.", {"amount": "number", "source": "string", "target": "string"}
    ),
    "parcel": Tool("track_parcel", "Track a parcel.", {"number": "string"}),
}

_WORDS: Final = {  # the first of the past, the others of new tasks
    "units": (
        "How many {target} are {value} {source}?",
        "I have {value} {source}. What is that in {target}?",
        "Convert {value} {source} to {target}.",
    ),
    "word": (
        "How do you say '{text}' in {language}?",
        "I need the {language} for '{text}'.",
        "Translate '{text}' to {language}.",
    ),
    "rain": (
        "Will it rain in {city} on {day}?",
        "What will the weather be on {day} in {city}?",
        "I travel to {city} on {day}. Do I need an umbrella?",
    ),
    "timer": (
        "Start a timer of {minutes} minutes.",
        "The eggs need {minutes} minutes. Tell me when it is over.",
        "Wake me in {minutes} minutes.",
    ),
    "song": (
        "Play '{title}' for me.",
        "I want to hear the song '{title}'.",
        "Put on '{title}', please.",
    ),
    "light": (
        "Set the light in the {room} to {percent} percent.",
        "Make the {room} lamp {percent} percent bright.",
        "{percent} percent of light is enough in the {room}.",
    ),
    "money": (
        "How many {target_name} do I get for {amount} {source_name}?",
        "I want to exchange {amount} {source_name} for {target_name}.",
        "What are {amount} {source_name} in {target_name}?",
    ),
    "parcel": (
        "Where is parcel {digits}?",
        "My parcel has the number {digits}. Has it arrived?",
        "I still wait for the parcel {digits}.",
    ),
}
_UNITS: Final = (
    *(("miles", "kilometers"), ("kilograms", "pounds"), ("inches", "centimeters")),
    *(("liters", "gallons"), ("feet", "meters"), ("hours", "minutes"), ("acres", "hectares")),
)
_TEXTS: Final = (
    *("bread", "good night", "train station", "thank you", "window", "cheese", "my friend"),
    *("happy birthday", "water", "the bill", "I am lost", "apple", "blue sky", "tomorrow"),
)
_LANGUAGES: Final = ("French", "German", "Spanish", "Italian", "Polish", "Turkish", "Swedish")
_CITIES: Final = (
    *("Berlin", "Paris", "Vienna", "Rome", "Oslo", "Madrid", "Zurich", "Prague", "Lyon", "Porto"),
)
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SONGS: Final = (
    *("Yellow River", "Blue Moon", "Green Hills", "Rainy Monday", "The Old Clock", "Paper Boats"),
    *("Night Train", "Silver Coin", "Long Way Home", "Summer Rain", "Red Balloon", "Quiet Street"),
)
_ROOMS: Final = (
    *("kitchen", "bedroom", "hall", "office", "garage", "bathroom", "attic", "cellar", "nursery"),
)
_MONEY: Final = {
    "euros": "EUR",
    "dollars": "USD",
    "yen": "JPY",
    "pounds": "GBP",
    "francs": "CHF",
    "rupees": "INR",
}


def _units(luck: random.Random) -> dict[str, Any]:
    source, target = luck.choice(_UNITS)
    return {"value": luck.randrange(2, 500), "source": source, "target": target}


def _money(luck: random.Random) -> dict[str, Any]:
    (source_name, source), (target_name, target) = luck.sample([*_MONEY.items()], 2)
    names = {"source_name": source_name, "target_name": target_name}
    return {"amount": luck.randrange(10, 990, 5), "source": source, "target": target, **names}


def _parcel(luck: random.Random) -> dict[str, Any]:
    number = luck.randrange(1000, 99999)
    return {"number": f"PK-{number:06}", "digits": number}


_VALUES: Final[dict[str, Callable[[random.Random], dict[str, Any]]]] = {
    "units": _units,
    "word": lambda luck: {"text": luck.choice(_TEXTS), "language": luck.choice(_LANGUAGES)},
    "rain": lambda luck: {"city": luck.choice(_CITIES), "day": luck.choice(_DAYS)},
    "timer": lambda luck: {"minutes": luck.randrange(3, 60)},
    "song": lambda luck: {"title": luck.choice(_SONGS)},
    "light": lambda luck: {"room": luck.choice(_ROOMS), "percent": luck.randrange(5, 100, 5)},
    "money": _money,
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
