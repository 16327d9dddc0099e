"""A plain Python agent: one decorator records each call.

    python examples/plain_python.py

Its runs are in the file shown by `kp-middleware status`; list them with `kp-middleware`.
"""

from kp_middleware import KnowledgePulse, current_trace

kp = KnowledgePulse(domain="finance")

RATES = {"EUR": 1.0, "USD": 1.08, "JPY": 171.3}


@kp.tool
def rate(currency: str) -> float:
    """Return the price of a euro in a currency."""
    return RATES[currency]


@kp.tool
def convert(amount: float, per_euro: float) -> float:
    """Convert an amount to euros."""
    return round(amount / per_euro, 2)


@kp.capture
def in_euros(question: str, amount: float, currency: str) -> float:
    """Convert an amount to euros; retry an unknown currency with its first three letters."""
    trace = current_trace()
    trace.thought(f"{question} I need the rate of {currency}, then I can convert {amount}.")
    try:
        per_euro = rate(currency)
    except KeyError:
        trace.thought("There is no such code: I try the three letters it begins with.")
        per_euro = rate(currency[:3])
    trace.outcome(confidence=0.95)
    return convert(amount, per_euro)


def main() -> None:
    """Ask two questions, and wait until both are scored."""
    with kp:
        print(in_euros("What are 50 dollars in euros?", 50, "USD"))
        print(in_euros("What are 9000 yen in euros?", 9000, "JPY (yen)"))
        kp.flush(60)
    print("Now type: kp-middleware show @last")


if __name__ == "__main__":
    main()
