"""What the steps of a trace are, for agents, graphs, chains and models."""

from langchain_core.language_models.fake import FakeListLLM
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from pydantic import BaseModel
from scripted_agents import agent
from scripted_models import ScriptedModel, calls, says
from versions import START, MessagesState, StateGraph, ToolStrategy


def test_a_react_run_is_thoughts_calls_and_observations_in_order(adding, config, notebook):
    adding.invoke({"messages": [("user", "What is 1 + 2?")]}, config)

    assert notebook.story == [
        "thought: I need to add.",
        "tool_call add(a=1, b=2)",
        "observation add: 3",
        "thought: The answer is 3.",
    ]


def test_a_bare_question_and_answer_is_one_thought(config, notebook):
    agent(says("Paris")).invoke({"messages": "What is the capital of France?"}, config)

    assert notebook.story == ["thought: Paris"]
    assert notebook.trace.outcome.result_summary == "Paris"


def test_a_silent_turn_is_no_thought(config, notebook):
    agent(calls(add={"a": 1, "b": 2}), says("")).invoke({"messages": "1 + 2?"}, config)

    assert notebook.story == ["tool_call add(a=1, b=2)", "observation add: 3"]


def test_reasoning_and_text_of_a_turn_are_one_thought(config, notebook):
    said = AIMessage([{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Yes."}])

    agent(said).invoke({"messages": "Is it?"}, config)

    assert notebook.story == ["thought: Hm.\n\nYes."]
    assert notebook.trace.outcome.result_summary == "Yes."


class Sum(BaseModel):
    value: int
    confidence: float = 0.93


def test_case_05_a_structured_outputs_pseudo_tool_is_called_and_observed(config, notebook):
    summing = agent(calls(Sum={"value": 3}), tools=(), response_format=ToolStrategy(Sum))

    summing.invoke({"messages": "1 + 2?"}, config)

    assert notebook.story == [
        "tool_call Sum(value=3)",
        "observation Sum: Returning structured response: value=3 confidence=0.93",
    ]


def test_a_later_human_turn_is_an_observation_with_content(config, notebook):
    model = ScriptedModel(turns=[says("For what?"), says("Booked.")])
    graph = StateGraph(MessagesState)
    graph.add_node("ask", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("human", lambda _: {"messages": [HumanMessage("For lunch.")]})
    graph.add_node("book", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "human")
    graph.add_edge("human", "book")

    graph.compile().invoke({"messages": [("user", "Book a table.")]}, config)

    assert notebook.story == ["thought: For what?", "observation: For lunch.", "thought: Booked."]
    assert notebook.trace.steps[1].content == "For lunch."
    assert notebook.trace.task.objective == "Book a table."


def test_earlier_turns_of_the_conversation_are_not_steps(config, notebook):
    history = [("user", "Hello"), ("ai", "Hi"), ("user", "What is 1 + 2?")]

    agent(says("-"), says("3")).invoke({"messages": history}, config)

    assert notebook.story == ["thought: 3"]
    assert notebook.trace.task.objective == "What is 1 + 2?"


def test_a_chain_is_recorded_with_its_own_input_and_output(config, notebook):
    prompt = ChatPromptTemplate.from_messages([("system", "Be short."), ("human", "On {topic}!")])
    chain = prompt | ScriptedModel(turns=[says("Cats purr.")]) | StrOutputParser()

    chain.invoke({"topic": "cats"}, config)

    assert notebook.story == ["thought: Cats purr."]
    assert notebook.trace.task.objective == "cats"
    assert notebook.trace.outcome.result_summary == "Cats purr."
    assert notebook.trace.metadata.framework == "langchain"


def test_a_bare_model_is_a_run(config, notebook):
    ScriptedModel(turns=[says("hi")]).invoke("hello", config)

    assert notebook.story == ["thought: hi"]
    assert notebook.trace.task.objective == "hello"
    assert notebook.trace.outcome.result_summary == "hi"


def test_case_13_a_completion_model_is_a_run(config, notebook):
    FakeListLLM(responses=["hi"]).invoke("hello", config)

    assert notebook.story == ["thought: hi"]
    assert notebook.trace.task.objective == "hello"


def test_a_run_without_model_or_tool_is_no_trace(config, notebook):
    ChatPromptTemplate.from_template("{x}").invoke({"x": "y"}, config)

    assert notebook.runs == []
