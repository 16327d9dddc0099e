"""A file of traces as an agent's busy month leaves it, made with the product itself.

    python tests/browser/busy_month.py kp.db

The agents follow a script; everything after them is real: scored, redacted, sent to a registry on
this machine, refused by it, blocked.
"""

import random
import sys
import time
from itertools import cycle, islice
from pathlib import Path

from kp_middleware import KnowledgePulse
from kp_middleware.testing import LocalRegistry, StandInEmbedder

REFUSED = "Write the changelog"
"""The registry does not take what begins so."""
BLOCKED = "Compare the salaries of both branches"
"""This stays here: a rulebook that it needs is missing."""

_HOURS_S = 3600
_RUNS = 72
_NO_RULES = "gitleaks:company-rules.toml"

_TOOLS = {
    "code": ("search_files", "read_file", "run_tests", "edit_file", "git_log"),
    "finance": ("get_prices", "calculator", "read_report", "convert"),
    "customer_service": ("find_order", "read_policy", "send_mail"),
}
_TASKS = {
    "code": (
        "Find out why orders are refused since Monday, and repair it",
        "Fix the flaky test of the scheduler",
        "Make the import of old invoices twice as fast",
        "Find the memory leak in the worker that resizes pictures",
        "Rename the column customer to account in the whole project",
        "Why does the nightly build fail on ARM?",
        f"{REFUSED} for version 4.2 from the merged changes",
        "Add a command that exports all bookings as CSV",
    ),
    "finance": (
        "Compare the interest of the three offers for the warehouse",
        "What did we spend on cloud servers in the third quarter?",
        "Find the invoice of 4,310.20 that nobody can match",
        "How would a dollar of 1.20 change the margin of each product?",
        "Draw up the cash flow of the next six weeks",
        "Which customers pay later than they did last year?",
    ),
    "customer_service": (
        "The item of order 88-1204 has not arrived: where is it?",
        "Change the address of order 88-1377 to mia.keller@example.org's new one",
        "May I return shoes that I have worn once?",
        "The discount was not applied to order 88-1410",
        "My account is locked after a typing error",
    ),
}
_VERBS = (
    "check",
    "compare",
    "count",
    "follow",
    "measure",
    "open",
    "order",
    "repeat",
    "sort",
    "test",
)
_NOUNS = """
address answer archive author batch branch budget cache calendar carrier change chart clause
clock column commit contract cost country currency customer date delay deposit depot detail
draft driver entry error estimate event fee field filter folder form graph history index
interest invoice job label ledger limit list loan lock log margin memory message method module
month notice number option owner package page item parser password path pattern payment period
photo plan policy pool price process product quarter query queue rate reason receipt record
refund region release reminder report request retry return review risk route row rule schedule
schema season server session shelf shift signal size stage stock store street summary supplier
table tax team term test thread ticket token total trace transfer trend unit update user version
voucher warehouse week window worker zone
""".split()  # noqa: SIM905 - words


def make_busy_month(path, runs=_RUNS):
    """Writes such a file; the traces that the registry has at the end."""
    with LocalRegistry(answers=_answer, burst=runs) as registry:
        settings = {
            "db": path,
            "registry_url": registry.url,
            "api_key": registry.api_key,
            "agent_id": "kp-example",
            "threshold": 0.7,
            "visibility": "network",
        }
        with KnowledgePulse(embedder=StandInEmbedder(), **settings) as kp:
            _work(kp, runs)
            kp.flush(timeout_s=50)
        with KnowledgePulse(
            embedder=StandInEmbedder(), redact_engines=[_NO_RULES], **settings
        ) as kp:
            _run(kp, "finance", BLOCKED, 3, 0.99, time.time())
            kp.flush(timeout_s=50)
        return registry.documents


def _answer(request):
    return 400 if REFUSED.encode() in (request.body or b"") else None


def _work(kp, runs):
    chance = random.Random(6)
    now = time.time()
    domains = ("code", "code", "finance", "code", "customer_service", "finance")
    tasks = {domain: cycle(tasks) for domain, tasks in _TASKS.items()}
    for number, domain in enumerate(islice(cycle(domains), runs)):
        steps = chance.choice((1, 2, 2, 3, 3, 4, 5))
        confidence = round(min(0.99, chance.betavariate(9, 1.1)), 2)
        objective = next(tasks[domain])
        repeated = number // len(domains) // 4
        if repeated:
            objective += f" (case {100 + 7 * number})"
        started = now - (runs - number) * 10 * _HOURS_S + chance.random() * 8 * _HOURS_S
        _run(kp, domain, objective, steps, confidence, started, fails=chance.random() < 0.12)


def _run(kp, domain, objective, steps, confidence, started_at_s, *, fails=False):
    chance = random.Random(f"{objective} {steps} {confidence}")
    recorder = kp.start_recording("example")
    now = min(started_at_s, time.time() - 600)
    recorder.at(now)
    recorder.domain, recorder.agent_name = domain, "worker"
    recorder.thread_id = f"case-{chance.randrange(9)}"
    recorder.set_objective(objective)
    model = chance.choice(("scripted-large", "scripted-small", "scripted-small"))
    for number, tool in enumerate(islice(cycle(_TOOLS[domain]), steps)):
        took_s = chance.lognormvariate(0.4, 0.6)
        now += took_s
        recorder.at(now)
        recorder.thought(
            _thought(chance),
            model=model,
            input_tokens=chance.randrange(400, 3000) + 900 * number,
            output_tokens=chance.randrange(30, 400),
            latency_ms=1000 * took_s,
        )
        recorder.tool_call(tool, {"about": " ".join(objective.split()[:4]), "most": 10 + number})
        if chance.random() < 0.3:
            recorder.error(f"TimeoutError: {tool} gave no answer within 5 s", tool=tool)
            now += 5
        took_s = chance.lognormvariate(-2, 1)
        now += took_s
        recorder.at(now)
        recorder.observation(
            tool=tool,
            output_summary=f"{chance.randrange(1, 40)} results; the first is most likely",
            latency_ms=round(1000 * took_s, 1),
        )
    if chance.random() < 0.4:
        recorder.thought("Ask anna.meier@example.org, or call +41 44 668 18 00, if it returns.")
    recorder.outcome(
        "Nothing was found." if fails else "Done, and checked twice.",
        confidence=confidence,
        success=not fails,
    )
    recorder.finish()


def _thought(chance):
    """Other words each time, or all runs would be like one another."""
    verbs, nouns = chance.sample(_VERBS, 2), chance.sample(_NOUNS, 6)
    return (
        f"{verbs[0].capitalize()} {nouns[0]}, {nouns[1]}, {nouns[2]};"
        f" {verbs[1]} {nouns[3]}, {nouns[4]} before {nouns[5]}."
    )


if __name__ == "__main__":
    make_busy_month(Path(sys.argv[1]))
