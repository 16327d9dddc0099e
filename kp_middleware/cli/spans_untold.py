"""Variables that keep frameworks from telling OpenTelemetry, and so us, what an agent did."""

import os
from importlib.util import find_spec
from typing import Final

_YES: Final = frozenset({"true", "1", "yes", "on"})
_ALL: Final = frozenset({"always_on", "parentbased_always_on"})
_HIDING: Final = {  # by their values
    "OTEL_SDK_DISABLED": (
        "no span is made, so no run of OpenTelemetry is recorded: unset it",
        _YES,
    ),
    "OPENAI_AGENTS_DISABLE_TRACING": ("OpenAI's SDK tells no processor: unset it", _YES),
    "OPENAI_AGENTS_TRACE_INCLUDE_SENSITIVE_DATA": (
        "OpenAI's SDK tells nothing that was said: set it to true",
        frozenset({"false", "0", "no", "off"}),
    ),
    "OPENINFERENCE_HIDE_INPUTS": ("nothing that was asked is told: unset it", _YES),
    "OPENINFERENCE_HIDE_OUTPUTS": ("nothing that was answered is told: unset it", _YES),
    "OPENINFERENCE_HIDE_INPUT_MESSAGES": ("nothing that was asked is told: unset it", _YES),
    "OPENINFERENCE_HIDE_OUTPUT_MESSAGES": ("nothing that was answered is told: unset it", _YES),
    "TRACELOOP_TRACE_CONTENT": (
        "OpenLLMetry tells nothing that was said: unset it",
        frozenset({"false", "0", "no", "off"}),
    ),
}
_CUTTING: Final = ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT")
_SILENT: Final = {  # what was said is told only where this is set, or a call says so
    "agent_framework": "ENABLE_SENSITIVE_DATA",
    "google.adk": "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
}


def untold() -> list[str]:
    """Return what is amiss in this environment, each with what to do; none without the SDK."""
    if not (_is_here("opentelemetry.sdk") or _is_here("agents")):
        return []
    said = {name: os.environ.get(name, "").strip().lower() for name in (*_HIDING, *_CUTTING)}
    found = [f"{name}: {told}" for name, (told, values) in _HIDING.items() if said[name] in values]
    sampler = os.environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    if sampler and sampler not in _ALL:
        found.append(
            f"OTEL_TRACES_SAMPLER: by {sampler} runs that are not sampled are not recorded"
        )
    found += [
        f"{name}: what it cuts off is lost to runs as well" for name in _CUTTING if said[name]
    ]
    found += [
        f"{module} tells nothing that was said unless {name} is set, or your program says so"
        for module, name in _SILENT.items()
        if _is_here(module) and not os.environ.get(name)
    ]
    return found


def _is_here(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
