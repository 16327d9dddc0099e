"""Texts and tools of the scripted agents of all frameworks."""

import asyncio
import json

ASKED = "Refund order A1, please."
REFUND = (
    [
        ("The policy decides, so I need both.",),
        "I look both up.",
        ("look_up", {"order": "A1"}, "c1"),
        ("search", {"topic": "refund policy"}, "c2"),
    ],
    ["Now I pay.", ("pay", {"order": "A1", "euros": 12}, "c3")],
    ["The till was closed, so once more.", ("pay", {"order": "A1", "euros": 12}, "c4")],
    ["Refunded 12 EUR for order A1."],
)
WAITS = ([("wait", {}, "c1")],)
FAILS = ([("search", {"topic": "refund policy"}, "c1")], ConnectionError("the model is away"))
EXPERT = (["Yes, within 30 days."],)


def desk(tool="expert", **given):
    """An agent that asks another one, which is its tool."""
    return (["I ask.", (tool, given or {"input": "May I?"}, "c1")], ["You may."])


def taken(turns):
    """The next turn of a script; one that is an error is raised."""
    turn = turns.pop(0)
    if isinstance(turn, BaseException):
        raise turn
    return turn


def kind_of(part):
    return "text" if isinstance(part, str) else "thought" if len(part) == 1 else "call"


class Desk:
    """An agent and its tools, where the framework's takes no attribute."""

    def __init__(self, agent, kit=None):
        self.agent, self.kit = agent, kit


class Tools:
    """A support desk's; `pay` fails once, and `wait` tells when it began."""

    def __init__(self, failure=ValueError):
        self.failure = failure
        self.tried = 0
        self.waits = asyncio.Event()

    def all(self):
        def look_up(order: str) -> str:
            """Look an order up.

            Args:
                order: The order.
            """
            return json.dumps({"order": order, "euros": 12, "paid": True})

        def search(topic: str) -> str:
            """Search the handbook.

            Args:
                topic: The topic.
            """
            return f"a page about {topic}"

        def pay(order: str, euros: int) -> str:
            """Pay money back.

            Args:
                order: The order.
                euros: How much.
            """
            self.tried += 1
            if self.tried == 1:
                raise self.failure("the till is closed")
            return f"{euros} EUR for {order} are paid"

        async def wait() -> str:
            """Wait."""
            self.waits.set()
            await asyncio.sleep(60)
            return "waited"

        return look_up, search, pay, wait
