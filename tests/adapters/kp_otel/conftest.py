"""A tracer provider with our processor."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from sample_spans import GENAI

from kp_otel import KPSpanProcessor


@pytest.fixture
def processor(collector):
    return KPSpanProcessor(collector)


@pytest.fixture
def provider(processor):
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return provider


@pytest.fixture
def tracer(provider):
    return provider.get_tracer(GENAI)
