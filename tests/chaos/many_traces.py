"""Traces in quantity, and what has become of them in a file."""

import math
import random
from collections import Counter, defaultdict
from contextlib import closing, contextmanager

from pydantic import SecretStr

from kp_middleware import ReasoningTrace, Step, Tool
from kp_middleware.database import connect
from kp_middleware.export import Registry, Sender
from kp_middleware.locations import pacing_file
from kp_middleware.storage import OutboxTable, PacingTable, SharedPace, lift_stops

DAY_S = 86_400.0

_WORDS = [f"{first}{last}" for first in "bdfgklmnprst" for last in ("ando", "elix", "orum", "usta")]
_TOOLS = [Tool(name=name) for name in ("search", "read", "write", "ask")]


def random_trace(luck, objective=None):
    """A trace of some steps with words and tools by chance: its score is anywhere."""
    steps = [
        Step(
            step_id=number,
            type=luck.choice(["thought", "tool_call", "observation"]),
            content=words(luck, 12),
            tool=luck.choice(_TOOLS),
        )
        for number in range(luck.randint(1, 12))
    ]
    return ReasoningTrace.of(
        objective or words(luck, 6), steps, confidence=luck.random(), success=True
    )


def words(luck, count):
    return " ".join(luck.choices(_WORDS, k=count))


def sent_by_id(registry):
    """The number of posts of each body and idempotency key, by the id of its trace."""
    sent = defaultdict(Counter)
    for request in registry.requests:
        trace = ReasoningTrace.model_validate_json(request.body)
        sent[trace.id][request.body, request.headers["idempotency-key"]] += 1
    return sent


def rows(db, sql, *values):
    with closing(connect(db)) as connection:
        return connection.execute(sql, values).fetchall()


@contextmanager
def sender_on(db, registry, clock, *, timeout_s=5.0):
    """A forwarder as the next process has it."""
    with (
        closing(connect(db)) as connection,
        closing(Registry(registry.url, SecretStr(registry.api_key), timeout_s=timeout_s)) as there,
    ):
        outbox = OutboxTable(connection, registry=registry.url, agent_id=None)
        table = PacingTable(
            pacing_file(), registry=there.url, agent_id=None, key_hash=there.key_hash
        )
        pace = SharedPace(table, longest_request_s=timeout_s, clock=clock)
        yield Sender(outbox, there, pace=pace, clock=clock, jitter=random.Random(1).random)


def send_for(forwarder, clock, turns=100_000):
    """So many times, and ``clock`` goes on where it waits; returns what it waits for then.

    Where it waits for the user, that one looks after a day, and says: try again.
    """
    for _ in range(turns):
        wait_s = forwarder.send_due()
        if wait_s is None:
            return None
        if wait_s == math.inf:
            lift_stops(pacing_file())
            wait_s = DAY_S
        clock.advance(wait_s + 0.001)  # the file cuts instants to milliseconds
    return wait_s
