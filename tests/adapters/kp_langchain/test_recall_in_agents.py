"""Past runs in LangChain: before the task, by a retriever, by a tool."""

import asyncio
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatResult
from pydantic import Field
from scripted_agents import add, chain
from scripted_models import ScriptedModel, answer_of, calls
from versions import InMemorySaver, KPRecallMiddleware, create_agent
from ways_to_run import ainvoke, invoke

from kp_langchain import KPCallbackHandler, KPRetriever, recall_past_runs

TASK = "Refund order B4, please."
AGAIN = "And refund order B5, please."


class Listening(ScriptedModel):
    """Keeps what it was shown."""

    shown: list[list[BaseMessage]] = Field(default_factory=list)

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.shown.append(list(messages))
        return super()._generate(messages)


@pytest.fixture
def known(kp):
    """A run that a person said was right, among others."""
    for other in ("Bake a cake.", "Translate the letter.", "Count all tickets."):
        kp.capture(lambda question: question)(other)
    handler = KPCallbackHandler(kp)
    refund = chain(calls(add={"a": 17, "b": 1}), answer_of("It is refunded."))
    refund.invoke({"messages": "Refund order A17, please."}, {"callbacks": [handler]})
    kp.feedback(handler.trace_id(), success=True)
    return handler.trace_id()


def recalling(kp, *turns, saver=None, **options):
    model = Listening(turns=list(turns))
    tools = [add, recall_past_runs(kp)]
    middleware = [KPRecallMiddleware(kp, **options)]
    made = create_agent(
        model, tools, system_prompt="Help.", middleware=middleware, checkpointer=saver
    )
    return made, model.shown


@pytest.mark.parametrize("way", [invoke, ainvoke])
def test_the_model_is_shown_a_like_run_before_the_task_and_nothing_of_it_is_recorded(
    kp, known, way
):
    made, shown = recalling(kp, calls(add={"a": 4, "b": 1}), answer_of("Done."))
    config = {"callbacks": [KPCallbackHandler(kp)]}

    ended = way(made, {"messages": TASK}, config)

    run = kp.run("@last")
    for messages in shown:
        system, quote, task, *_ = messages
        assert (system.type, system.text) == ("system", "Help.")
        assert (quote.type, task.type, task.text) == ("human", "human", TASK)
        assert f'<past_run id="{known}" succeeded="true" known_by="feedback"' in quote.text
        assert 'Call: {"name": "add", "arguments": {"a": 17, "b": 1}}\n' in quote.text
    assert len(shown) == 2
    assert not any("past_run" in message.text for message in ended["messages"])
    assert run.recalled == (known,)
    assert run.objective == TASK
    assert not any("past_run" in (step.content or "") for step in run.steps)


@pytest.mark.usefixtures("known")
def test_each_turn_of_a_thread_is_shown_its_own(kp):
    made, shown = recalling(
        kp, answer_of("Done."), answer_of("You are welcome."), saver=InMemorySaver()
    )
    thread = {"configurable": {"thread_id": "1"}, "callbacks": [KPCallbackHandler(kp)]}

    made.invoke({"messages": TASK}, thread)
    made.invoke({"messages": AGAIN}, thread)

    first, second = ([message.text for message in messages] for messages in shown)
    assert [TASK in text for text in first] == [False, False, True]
    assert [text.count("<past_run") for text in second][-2:] == [1, 0]
    assert second[-1] == AGAIN
    assert [step.content for step in kp.run("@last").steps] == ["You are welcome."]


def test_nothing_is_said_where_nothing_is_known(kp):
    made, shown = recalling(kp, answer_of("Done."))

    made.invoke({"messages": TASK}, {"callbacks": [KPCallbackHandler(kp)]})

    assert [message.type for message in shown[0]] == ["system", "human"]
    assert kp.run("@last").recalled == ()


@pytest.mark.usefixtures("known")
def test_an_owner_sees_its_own_runs_alone_and_owns_what_is_recorded(kp):
    def run(owner):
        made, shown = recalling(kp, answer_of(f"Done for {owner}."), owner=owner)
        handler = KPCallbackHandler(kp)
        made.invoke({"messages": TASK}, {"callbacks": [handler]})
        kp.feedback(handler.trace_id(), success=True)
        return " ".join(message.text for message in shown[0])

    assert "<past_run" not in run(lambda _: "us")  # what is known is nobody's
    assert "<past_run" not in run("them")
    assert "Done for them." in run("them")
    assert "Done for them." not in run("us")
    assert kp.recall(TASK) == []


def test_a_retriever_gives_quotes_with_where_they_are_from(kp, known):
    (found,) = KPRetriever(kp=kp).invoke(TASK)
    (later,) = asyncio.run(KPRetriever(kp=kp, max_age_days=1).ainvoke(TASK))

    assert found.metadata["trace_id"] == known
    assert found.metadata["success_source"] == "feedback"
    assert found.page_content == later.page_content
    assert found.page_content.endswith("</past_run>")
    assert KPRetriever(kp=kp, domain="finance").invoke(TASK) == []


def test_an_agent_asks_for_past_runs_by_a_tool(kp, known):
    turns = calls(recall_past_runs={"task": TASK}), answer_of("Done.")
    asking = chain(*turns, tools=[recall_past_runs(kp)])

    for way in (invoke, ainvoke):
        ended = way(asking, {"messages": TASK}, {"callbacks": [KPCallbackHandler(kp)]})

        assert known in ended["messages"][2].text
        assert kp.run("@last").recalled == (known,)


@pytest.mark.usefixtures("known", "damaged")
def test_a_memory_that_fails_never_reaches_the_agent(kp):
    made, _ = recalling(kp, calls(recall_past_runs={"task": TASK}), answer_of("Done."))

    assert made.invoke({"messages": TASK})["messages"][-1].text == "Done."
