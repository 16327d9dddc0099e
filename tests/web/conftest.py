import asyncio
from functools import partial
from types import MappingProxyType

import pytest
from in_datasette import Shown
from page_reading import EchoLinks

from kp_middleware import current_trace
from kp_middleware.storage import History
from kp_middleware.web.pages import FullRun, gate_html, overview_html, trace_html
from kp_middleware.web.trace_map import SimilarRuns


@pytest.fixture
def show():
    """Opens files in Datasette, as ``datasette FILE`` does."""
    with asyncio.Runner() as runner:
        yield partial(Shown, runner)


@pytest.fixture
def work(kp):
    """Records one run: what was asked, of which domain, with how much confidence."""
    look = kp.tool(name="look")(str.upper)

    def work(asked, domain="code", confidence=0.9, *, uses_tool=True):
        @kp.capture(domain=domain)
        def answer(question):
            current_trace().thought(f"I think of {question}")
            current_trace().outcome(confidence=confidence)
            return look(question) if uses_tool else question

        answer(asked)

    return work


@pytest.fixture
def overview_page(connection):
    return lambda links=None, **options: overview_html(
        History(connection).overview(), links or EchoLinks(), **options
    )


@pytest.fixture
def gate_page(connection):
    return lambda: gate_html(
        History(connection).overview().scores, History(connection).last_decisions(), EchoLinks()
    )


@pytest.fixture
def trace_page(connection):
    """The page of the newest trace."""

    def page(links=None, *, around=MappingProxyType({}), **options):
        seq = History(connection).find("@last")
        alike = SimilarRuns.from_points(History(connection).points(around=seq))
        return trace_html(
            FullRun(History(connection).run(seq), alike, **around), links or EchoLinks(), **options
        )

    return page
