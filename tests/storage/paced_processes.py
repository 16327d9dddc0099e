"""Processes that share one pace, on a clock that stands still until told."""

from pathlib import Path

from kp_middleware.rate_limit import Allowance
from kp_middleware.storage import PacingTable, SharedPace, lift_stops
from kp_middleware.testing import FakeClock

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
LEASE_S = 40.0


class Machine:
    """Starts processes that share a folder and a clock."""

    def __init__(self, folder):
        self.path = Path(folder) / "pacing.db"
        self.beside = Path(folder) / "kp.db.pacing"
        self.clock = FakeClock()

    def start(self, **whose):
        agent = {"registry": "https://registry.example", "agent_id": "agent-1", "key_hash": "key-1"}
        usual, fallback = (
            PacingTable(path, **{**agent, **whose}, patience_s=0.01)
            for path in (self.path, self.beside)
        )
        return SharedPace(usual, fallback=fallback, longest_request_s=10.0, clock=self.clock)

    def user_acts(self):
        """As kp-middleware outbox retry does."""
        lift_stops(self.path)

    def sleep(self, seconds):
        self.clock.advance(seconds)


def answered(pace, _now):
    return pace.answered()


def unanswered(pace, _now):
    return pace.answer_lost()


def limited(pace, now):
    return pace.limited(now, 2.0)


def allowing(**allowance):
    return lambda pace, now: pace.answered().with_allowance(now, Allowance(**allowance))


def ask(keeper, answer=answered):
    """One whole request; returns the wait after it."""
    start_to_ask(keeper)
    wait_s = keeper.settle(answer)
    keeper.release()
    return wait_s


def start_to_ask(keeper):
    assert keeper.take() == 0
    assert keeper.spend() is not None


def wait_of(keeper):
    wait_s = keeper.take()
    keeper.release()
    return wait_s


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
