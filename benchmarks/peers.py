"""Handlers of other tracers that send nothing, for comparison: those that are installed.

Each serializes and queues as in production, with its own defaults. LangSmith, Langfuse and
OpenInference can be told to drop what they would send; MLflow and Opik send it to a process on this
machine that forgets it. What is queued is waited for between two measurements.
"""

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

from _sink_server import sink_url
from langchain_core.callbacks import BaseCallbackHandler


class Peer(NamedTuple):
    """A handler to measure, by the name of its project; and how its queue is waited for."""

    name: str
    handler: BaseCallbackHandler
    flush: Callable[[], object]


def installed_peers() -> Iterator[Peer]:
    """Yield all that can be imported here."""
    for module, make in (
        ("langsmith", _langsmith),
        ("langfuse", _langfuse),
        ("openinference", _openinference),
        ("mlflow", _mlflow),
        ("opik", _opik),
    ):
        if find_spec(module):
            yield make()


def _langsmith() -> Peer:
    import requests
    from langchain_core.tracers.langchain import LangChainTracer
    from langsmith import Client

    class DiscardingSession(requests.Session):
        def request(self, method: str, url: str, **_: Any) -> requests.Response:
            response = requests.Response()
            response.status_code, response._content = 202, b"{}"
            response.request = requests.Request(method, url).prepare()
            return response

    batches = {
        "use_multipart_endpoint": True,
        "scale_up_qsize_trigger": 1000,
        "scale_up_nthreads_limit": 16,
        "scale_down_nempty_trigger": 4,
        "size_limit": 100,
        "size_limit_bytes": 20_971_520,
    }
    server = {
        "version": "0.12",
        "batch_ingest_config": batches,
        "instance_flags": {"zstd_compression_enabled": True},
    }
    client = Client("http://127.0.0.1:9", api_key="x", session=DiscardingSession(), info=server)
    tracer = LangChainTracer(client=client, project_name="benchmark")
    return Peer("LangSmith", tracer, client.flush)


def _langfuse() -> Peer:
    from langfuse import Langfuse
    from langfuse.langchain import CallbackHandler

    langfuse = Langfuse(
        public_key="pk-lf-x",
        secret_key="sk-lf-x",
        base_url="http://127.0.0.1:9",
        span_exporter=_discarding_exporter(),
    )
    return Peer("Langfuse", CallbackHandler(public_key="pk-lf-x"), langfuse.flush)


def _openinference() -> Peer:
    from openinference.instrumentation import OITracer, TraceConfig
    from openinference.instrumentation.langchain._tracer import OpenInferenceTracer
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(_discarding_exporter()))
    tracer = OITracer(provider.get_tracer("x"), config=TraceConfig())
    return Peer("OpenInference", OpenInferenceTracer(tracer, False), provider.force_flush)


def _mlflow() -> Peer:
    os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", DO_NOT_TRACK="true")
    import mlflow
    from mlflow.entities.trace_location import MlflowExperimentLocation
    from mlflow.langchain.langchain_tracer import MlflowLangchainTracer

    mlflow.set_tracking_uri(sink_url())
    mlflow.tracing.set_destination(MlflowExperimentLocation("0"))
    return Peer("MLflow", MlflowLangchainTracer(), mlflow.flush_trace_async_logging)


def _opik() -> Peer:
    os.environ.update(OPIK_SENTRY_ENABLE="false", OPIK_ANALYTICS_ENABLE="false")
    os.environ.update(OPIK_URL_OVERRIDE=f"{sink_url()}/api", OPIK_PROJECT_NAME="benchmark")
    from opik.integrations.langchain import OpikTracer

    tracer = OpikTracer()
    return Peer("Opik", tracer, tracer.flush)


def _discarding_exporter() -> Any:
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class DiscardingExporter(SpanExporter):
        def export(self, _spans: object) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    return DiscardingExporter()
