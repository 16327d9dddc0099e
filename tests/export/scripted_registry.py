"""A registry that answers as a script says, and what a sender needs beside it."""

import math

from kp_middleware.errors import (
    RegistryForbiddenError,
    RegistryRejectedError,
    RegistryUnavailableError,
)
from kp_middleware.export import OutboxItem, Receipt, Sender
from kp_middleware.rate_limit import LocalPace, Pace
from kp_middleware.testing import ListOutbox, Row

HOUR_S = 3600.0
DEAD = RegistryForbiddenError(429, "a dead key", "kp-middleware outbox retry --failed")
REJECTED = RegistryRejectedError(400, "steps.0.type: no")
REFUSED = RegistryUnavailableError("connection refused; correct KP_REGISTRY_URL")
TROUBLE = RegistryUnavailableError("the registry answered 500", status=500)
LIMITED = RegistryUnavailableError("over the limit", status=429, retry_after_s=2.0)
BUSY = RegistryUnavailableError("the registry answered 503", status=503, retry_after_s=900.0)


class ScriptedRegistry:
    def __init__(self, clock, answers=(), *, chokes_on=()):
        self.clock, self.answers, self.chokes_on = clock, iter(answers), chokes_on
        self.asked = []

    def abort(self):
        return True

    def export(self, item):
        answer = next(self.answers, None)
        self.asked.append((self.clock(), answer))
        if item.trace_seq in self.chokes_on:
            raise TROUBLE
        if answer is not None:
            raise answer
        return Receipt(remote_id=f"kp:trace:{item.trace_seq}", status=201)


def outbox_of(clock, count, *, every_s=0.0):
    items = [OutboxItem(seq, b"{}", f"key-{seq}") for seq in range(1, count + 1)]
    return ListOutbox(Row(item, clock() + n * every_s) for n, item in enumerate(items))


def sender_of(outbox, registry, clock, pace=Pace(), luck=0.0):  # noqa: B008 - it is frozen
    keeper = LocalPace(pace, clock)
    return Sender(outbox, registry, pace=keeper, clock=clock, jitter=lambda: luck)


def live(sender, clock, for_s=float("inf")):
    """Do as the pipeline does, without the waiting, until nothing waits or the time is over."""
    until = clock() + for_s
    while (wait_s := sender.send_due()) not in {None, math.inf} and clock() + wait_s <= until:
        clock.advance(wait_s)
