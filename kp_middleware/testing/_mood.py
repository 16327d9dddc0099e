"""What a registry may do to a request beside answering it."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Self

from kp_middleware.testing._answers import NO_REPUTATION, TROUBLE, page
from kp_middleware.testing._wire import Answer, Manner, Received
from kp_middleware.testing._write_limit import dead_key


@dataclass(frozen=True, slots=True)
class Treatment:
    """How one request is treated.

    Attributes:
        manner: How the answer is brought.
        takes: Whether it is first judged, and stored, as it should be.
        says: The answer; None is that to what was taken.
    """

    manner: Manner = Manner.WHOLE
    takes: bool = False
    says: Answer | None = None


class Mood(Enum):
    """What a registry, or what stands before it, does to one request.

    What begins with ``STORE`` stores the document and keeps that to itself; the others, up to
    ``DEAD_KEY``, do not look at it.

    Attributes:
        HANG: Says nothing, until the client hangs up.
        RESET: Resets the connection.
        HANG_UP: Closes the connection without a word.
        CUT: Begins a 201 and closes the connection in the midst of it.
        NONSENSE: Answers 201 with a proxy's page.
        NO_REPUTATION: Answers 403: the agent is not in good standing.
        DEAD_KEY: Answers 429 with a limit of 0.
        DRIP: Does what it should, and answers byte by byte.
        CRAWL: Does what it should, and answers so slowly, from its headers on, that an answer takes
            half a minute, and no byte of it long.
        CLOSE_IDLE: Does what it should, then closes the connection that the client keeps.
        STORE_AND_HANG: Takes the document, and says nothing.
        STORE_AND_RESET: Takes the document, and resets the connection.
        STORE_AND_CUT: Takes the document, and answers half.
        STORE_AND_FAIL: Takes the document, and answers 500.
        STORE_AND_BABBLE: Takes the document, and answers 201 with a proxy's page.
    """

    HANG = Treatment(Manner.SILENT)
    RESET = Treatment(Manner.RESET)
    HANG_UP = Treatment(Manner.CLOSED)
    CUT = Treatment(Manner.CUT, says=page(201))
    NONSENSE = Treatment(says=page(201))
    NO_REPUTATION = Treatment(says=NO_REPUTATION)
    DEAD_KEY = Treatment(says=dead_key())
    DRIP = Treatment(Manner.DRIPPING, takes=True)
    CRAWL = Treatment(Manner.CRAWLING, takes=True)
    CLOSE_IDLE = Treatment(Manner.LAST, takes=True)
    STORE_AND_HANG = Treatment(Manner.SILENT, takes=True)
    STORE_AND_RESET = Treatment(Manner.RESET, takes=True)
    STORE_AND_CUT = Treatment(Manner.CUT, takes=True)
    STORE_AND_FAIL = Treatment(takes=True, says=TROUBLE)
    STORE_AND_BABBLE = Treatment(takes=True, says=page(201))

    @classmethod
    def mixed(
        cls, weights: Mapping[int | Self | None, float], *, seed: int
    ) -> Callable[[Received], int | Self | None]:
        """A script for a `LocalRegistry`: one of these for each request, the same for a seed.

        Args:
            weights: How often each comes, in any unit; None is a registry at its best.
            seed: Of the choices.

        >>> script = Mood.mixed({None: 8, 503: 1, Mood.HANG: 1}, seed=7)
        """
        luck, choices = random.Random(seed), tuple(weights)  # noqa: S311 - guards nothing
        return lambda _: luck.choices(choices, tuple(weights.values()))[0]
