"""The frameworks behind the names of instrumentations, and how each tells what was said."""

from functools import lru_cache
from typing import Final

from kp_middleware.spans import Scope

_OPENINFERENCE: Final = "openinference.instrumentation."
_NAMES: Final = {"gcp.vertex.agent": "google_adk", "strands.telemetry.tracer": "strands"}
_SWITCHES: Final = {
    "agent_framework": "ENABLE_SENSITIVE_DATA=true",
    "google_adk": "OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental and "
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_AND_EVENT",
    "pydantic_ai": "InstrumentationSettings(include_content=True)",
    "openai_agents": "RunConfig(trace_include_sensitive_data=True)",
}


@lru_cache(256)
def scope_of(name: str) -> Scope:
    """Return an instrumentation by its name.

    >>> scope_of("openinference.instrumentation.smolagents").framework
    'smolagents'
    """
    short = name.removeprefix(_OPENINFERENCE).removeprefix("opentelemetry.instrumentation.")
    framework = _NAMES.get(short, short.partition(".")[0].replace("-", "_")) or "opentelemetry"
    scope = Scope(
        name,
        framework,
        is_of_agents=name.startswith(_OPENINFERENCE),
        leaves_open=framework == "smolagents",
    )
    return scope._replace(switch=_SWITCHES.get(framework, scope.switch))
