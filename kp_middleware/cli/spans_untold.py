"""Variables that keep frameworks from telling OpenTelemetry, and so us, what an agent did."""

import os
from importlib.util import find_spec
from typing import Final

_YES: Final = ("true", "1", "yes", "on")
_NO: Final = ("false", "0", "no", "off")
_HIDING: Final = {  # by the values that hide it
    "OTEL_SDK_DISABLED": ("no spans, so no runs from OpenTelemetry: unset it", _YES),
    "OPENAI_AGENTS_DISABLE_TRACING": ("no runs from OpenAI's SDK: unset it", _YES),
    "OPENAI_AGENTS_TRACE_INCLUDE_SENSITIVE_DATA": (
        "no texts from OpenAI's SDK: set it to true",
        _NO,
    ),
    "OPENINFERENCE_HIDE_INPUTS": ("inputs are hidden: unset it", _YES),
    "OPENINFERENCE_HIDE_OUTPUTS": ("outputs are hidden: unset it", _YES),
    "OPENINFERENCE_HIDE_INPUT_MESSAGES": ("inputs are hidden: unset it", _YES),
    "OPENINFERENCE_HIDE_OUTPUT_MESSAGES": ("outputs are hidden: unset it", _YES),
    "TRACELOOP_TRACE_CONTENT": ("no texts from OpenLLMetry: unset it", _NO),
}
_CUTTING: Final = ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT")
_SILENT: Final = {  # texts are recorded only where this is set, or a call says so
    "agent_framework": "ENABLE_SENSITIVE_DATA",
    "google.adk": "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
}


def untold() -> list[str]:
    """Return what is amiss in this environment, each with what to do; none without the SDK."""
    if not (_is_here("opentelemetry.sdk") or _is_here("agents")):
        return []
    names = (*_HIDING, *_CUTTING, "OTEL_TRACES_SAMPLER")
    said = {name: os.environ.get(name, "").strip().lower() for name in names}
    found = [f"{name}: {told}" for name, (told, values) in _HIDING.items() if said[name] in values]
    if said["OTEL_TRACES_SAMPLER"] not in {"", "always_on", "parentbased_always_on"}:
        found.append("OTEL_TRACES_SAMPLER: runs that are not sampled are not recorded")
    found += [f"{name}: longer texts are cut in runs, too" for name in _CUTTING if said[name]]
    found += [
        f"{module} records no texts unless {name} is set, or your program says so"
        for module, name in _SILENT.items()
        if _is_here(module) and not os.environ.get(name)
    ]
    return found


def _is_here(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
