"""Handlers of other tracers that send nowhere, for comparison; those that are installed."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

from langchain_core.callbacks import BaseCallbackHandler


class Peer(NamedTuple):
    """A handler to measure, by the name of its project."""

    name: str
    make: Callable[[], BaseCallbackHandler]


def installed_peers() -> Iterator[Peer]:
    """Each of them serialises and queues as in production, and drops what it would send."""
    for peer, module in (
        (Peer("LangSmith", _langsmith), "langsmith"),
        (Peer("Langfuse", _langfuse), "langfuse"),
        (Peer("OpenInference", _openinference), "openinference"),
    ):
        if find_spec(module):
            yield peer


def _langsmith() -> BaseCallbackHandler:
    import requests
    from langchain_core.tracers.langchain import LangChainTracer
    from langsmith import Client

    class Nowhere(requests.Session):
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
    client = Client(
        "http://127.0.0.1:9",
        api_key="x",
        session=Nowhere(),
        info={"version": "0.12", "batch_ingest_config": batches},
    )
    return LangChainTracer(client=client, project_name="benchmark")


def _langfuse() -> BaseCallbackHandler:
    from langfuse import Langfuse
    from langfuse.langchain import CallbackHandler

    Langfuse(
        public_key="pk-lf-x",
        secret_key="sk-lf-x",
        base_url="http://127.0.0.1:9",
        span_exporter=_nowhere(),
    )
    return CallbackHandler(public_key="pk-lf-x")


def _openinference() -> BaseCallbackHandler:
    from openinference.instrumentation import OITracer, TraceConfig
    from openinference.instrumentation.langchain._tracer import OpenInferenceTracer
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(_nowhere()))
    return OpenInferenceTracer(OITracer(provider.get_tracer("x"), config=TraceConfig()), False)


def _nowhere() -> Any:
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Nowhere(SpanExporter):
        def export(self, _spans: object) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    return Nowhere()
