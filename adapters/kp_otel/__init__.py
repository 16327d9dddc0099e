"""Record agents that use OpenTelemetry: ``provider.add_span_processor(KPSpanProcessor(kp))``.

Or `enable(kp)`, on the global provider. It reads the GenAI conventions, OpenInference, and
OpenLLMetry.
"""

from kp_otel._processor import KPSpanProcessor, enable

__all__ = ["KPSpanProcessor", "enable"]
