"""Runs sent as spans: what arrives at a receiver of OpenTelemetry's protocol, on loopback."""

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
from framework_dumps import RunCollector, as_expected
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from sample_spans import agent, call, fail, model, text, tool

from kp_middleware import KnowledgePulse
from kp_otel import KPSpanProcessor
from kp_otel.otlp import OTLPExporter


@pytest.fixture
def backend():
    """A receiver that decodes what it is sent; its ``status`` answers what has spans."""
    received = SimpleNamespace(spans=[], headers=[], status=200)

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            is_packed = self.headers["content-encoding"] == "gzip"
            request = gzip.decompress(body) if is_packed else body
            spans = [
                span
                for resource in ExportTraceServiceRequest.FromString(request).resource_spans
                for scope in resource.scope_spans
                for span in scope.spans
            ]
            received.headers.append(self.headers)
            status = received.status if spans else 200
            received.spans += spans if status == 200 else []
            self.send_response(status)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        received.url = f"http://127.0.0.1:{server.server_port}/v1/traces"
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        yield received
        server.shutdown()


def sent(run):
    """The spans that are sent of a run."""
    memory = InMemorySpanExporter()
    OTLPExporter(exporter=memory)(run)
    return memory.get_finished_spans()


def boil(provider, kp):
    """Record an agent that boils an egg in a pipeline."""
    provider.add_span_processor(KPSpanProcessor(kp))
    tracer = provider.get_tracer("pydantic-ai")
    with agent(tracer, **{"gen_ai.conversation.id": "a thread"}):
        asked = "An egg for anna.example@gmail.com?"
        spent = {"gen_ai.usage.input_tokens": 7, "gen_ai.response.model": "m"}
        model(tracer, text("I boil."), call("boil", "c1", minutes=6), asked=asked, **spent)
        with tool(tracer, "boil", "c1", result=None) as boil:
            fail(boil, ValueError("no gas"))
        model(tracer, call("boil", "c2", minutes=7), **spent)
        with tool(tracer, "boil", "c2", result="soft"):
            pass
        model(tracer, text("Here it is."), **spent)
    assert not kp.flush(30).unscored


def attributes(span):
    kinds = ("string_value", "int_value", "double_value", "bool_value")
    return {
        one.key: next(getattr(one.value, kind) for kind in kinds if one.value.HasField(kind))
        for one in span.attributes
    }


def test_a_run_arrives_with_its_score_signals_and_the_decision(db, backend, provider):
    kp = KnowledgePulse(db=db, embedder=None, threshold=0.0)
    kp.add_exporter(OTLPExporter(backend.url, headers={"authorization": "Bearer x"}), send="all")
    with kp:
        boil(provider, kp)

    run = kp.run("@last")
    own, *inner = backend.spans
    facts = attributes(own)
    assert [span.name for span in backend.spans] == [
        *("invoke_agent cook", "chat m", "execute_tool boil"),
        *("chat m", "execute_tool boil", "chat m"),
    ]
    assert {span.parent_span_id for span in inner} == {own.span_id}
    assert facts["kp.score"] == run.scoring.score
    assert facts["kp.signal.complexity"] == run.scoring.signals.complexity
    assert (run.framework, run.step_count) == ("pydantic_ai", 7)
    assert (facts["kp.decision"], facts["kp.trace.id"]) == ("forward", run.id)
    assert (facts["gen_ai.conversation.id"], facts["gen_ai.usage.input_tokens"]) == ("a thread", 21)
    assert backend.headers[0]["authorization"] == "Bearer x"
    assert not any("anna.example" in str(span) for span in backend.spans)


def test_what_was_sent_is_read_as_the_run_that_it_was_and_its_ids_are_always_the_same(db, provider):
    given = []
    kp = KnowledgePulse(db=db, embedder=None)
    kp.add_exporter(given.append, send="all")
    with kp:
        boil(provider, kp)

    book = RunCollector()
    processor = KPSpanProcessor(book)
    spans = sent(given[0])
    for span in spans:
        processor.on_start(span)
    for span in reversed(spans):
        processor.on_end(span)

    run, stored = as_expected(book.runs[0]), kp.run("@last")
    assert [step["type"] for step in run["steps"]] == [step.type for step in stored.steps]
    assert [step.get("tool") for step in run["steps"]] == [step.tool for step in stored.steps]
    assert (run["agent_name"], run["conversation"]) == ("cook", "a thread")
    assert run["result_summary"] == "Here it is."
    assert {span.instrumentation_scope for span in spans} == {InstrumentationScope("kp-middleware")}
    assert all(isinstance(span, ReadableSpan) for span in spans)
    ids = [span.context.span_id for span in spans]
    assert ids == [span.context.span_id for span in sent(given[0])]
    assert len({*ids}) == 6


def test_a_run_that_the_backend_refuses_is_passed(db, backend, provider, caplog):
    backend.status = 400
    kp = KnowledgePulse(db=db, embedder=None)
    kp.add_exporter(OTLPExporter(backend.url), send="all")
    with kp:
        boil(provider, kp)
        backend.status = 200
        kp.capture(lambda question: question)("Another?")
        kp.flush(30)

    assert "rejected the run" in caplog.text
    assert [span.name for span in backend.spans if not span.parent_span_id] == [
        "invoke_agent <lambda>"
    ]
