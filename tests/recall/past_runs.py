"""Runs of the past, as recall finds them."""

from kp_middleware import ReasoningTrace, Step, Tool

OTHERS = ("Bake a cake with plums.", "Translate the letter into Danish.", "Count all open tickets.")


def kept(kp, objective, *steps, success=True, owner=None, result="Done.", trace_id=None):
    """A run of which somebody told how it ended; its id."""
    steps = steps or ({"type": "thought", "content": "Done."},)
    numbered = [Step(step_id=number, **step) for number, step in enumerate(steps)]
    trace = ReasoningTrace.of(objective, numbered, result_summary=result)
    if trace_id is not None:
        trace = trace.model_copy(update={"id": trace_id})
    kp.submit(trace, owner=owner)
    kp.feedback(trace.id, success=success)
    return trace.id


def called(tool, **given):
    return {"type": "tool_call", "tool": Tool(name=tool), "input": given}


def failed(tool, error):
    return {"type": "error_recovery", "tool": Tool(name=tool), "output_summary": error}


def returned(tool, output):
    return {"type": "observation", "tool": Tool(name=tool), "output_summary": output}
