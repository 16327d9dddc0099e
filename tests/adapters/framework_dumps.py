"""Events of real frameworks, as adapters received them, and the runs expected of them."""

import gzip
import json
import re
from ast import literal_eval
from pathlib import Path

from kp_middleware.recording import Recorder, assemble
from kp_middleware.traces import Limits

FOLDER = Path(__file__).parents[3] / "shared" / "adapters"


class RunCollector:
    """A pipeline that keeps the runs it is given."""

    def __init__(self):
        self.ended = []

    def start_recording(self, framework, /):
        return Recorder(self.ended.append, Limits(), framework=framework)

    @property
    def runs(self):
        runs = [
            assemble(
                recorder,
                domain="general",
                visibility="network",
                privacy_level="aggregated",
                agent_id=None,
            )
            for recorder in self.ended
        ]
        return [run for run in runs if run is not None]


def dump_names(*frameworks):
    """The dumps of these frameworks, or all."""
    found = sorted(path.name for path in (FOLDER / "dumps").glob("*.json.gz"))
    return [name for name in found if not frameworks or name.split(".")[0] in frameworks]


def load(kind, name):
    return json.loads(gzip.decompress((FOLDER / kind / name).read_bytes()))


def as_expected(run):
    """A run in the form of `expected/`."""
    trace = run.trace
    return {
        "objective": trace.task.objective or None,
        "agent_name": run.agent_name,
        "steps": [step_of(step, facts) for step, facts in zip(trace.steps, run.facts, strict=True)],
        "result_summary": trace.outcome.result_summary or None,
        "tokens": [run.input_tokens or 0, run.output_tokens or 0],
        "conversation": run.thread_id,
    }


def expected(name):
    """The runs of a dump, with the faults of `expected/` mended that all of them have."""
    runs = load("expected", name)["runs"]
    return [corrected(run) for run in runs]


def corrected(run):
    run = dict(run)
    failed = run.pop("failed_with")
    steps = [dict(step) for step in run["steps"]]
    for step in steps:
        if step["type"] == "error_recovery":
            step["output_summary"] = plain_text(step["output_summary"])
    if failed is not None:
        last = steps[-1] if steps else {"type": ""}
        if last["type"] == "error_recovery" and cause(failed).endswith(
            cause(last["output_summary"])
        ):
            last["type"] = "observation"  # what ended the run is no recovery
        else:
            steps.append({"type": "observation", "output_summary": plain_text(failed)})
    return run | {"steps": steps}


def plain_text(error):
    """An error as `ValueError: message`, also where it was given as a dictionary."""
    if error.startswith("{"):
        given = literal_eval(error)
        error = f"{given['message']}: {given['data']}"
    return error.removesuffix(": ")


def cause(error):
    """The innermost words of an error."""
    found = re.search(r"'error': '(.*)'\}", error)
    return found[1] if found else error


def step_of(step, facts):
    found = {"type": step.type}
    if step.tool is not None:
        found["tool"] = step.tool.name
    for name in ("content", "input", "output_summary"):
        if (value := getattr(step, name)) is not None:
            found[name] = value
    if facts.agent is not None:
        found["beside"] = facts.agent
    return found
