"""The classic agent loop, which tells of its actions in events of its own."""

import pytest
from langchain_core.prompts import ChatPromptTemplate
from scripted_agents import add, look_up
from scripted_models import ScriptedModel, calls, says
from versions import AgentExecutor, create_tool_calling_agent
from ways_to_run import ainvoke, astream, invoke, stream

GO = {"input": "1+2"}
PROMPT = ChatPromptTemplate.from_messages(
    [("human", "{input}"), ("placeholder", "{agent_scratchpad}")]
)


class TalkingModel(ScriptedModel):
    """Says its next turn when there is one more result."""

    def _turn(self, messages):
        return self.turns[sum(message.type == "tool" for message in messages)].model_copy(deep=True)


def executor(*turns, tools=(add,)):
    tools = list(tools)
    agent = create_tool_calling_agent(TalkingModel(turns=list(turns)), tools, PROMPT)
    return AgentExecutor(agent=agent, tools=tools)


@pytest.mark.parametrize("way", [invoke, ainvoke, stream, astream])
def test_case_12_its_actions_are_not_counted_twice(config, notebook, way):
    way(executor(calls("I add.", add={"a": 1, "b": 2}), says("It is 3.")), GO, config)

    assert notebook.story == [
        "thought: I add.",
        "tool_call add(a=1, b=2)",
        "observation add: 3",
        "thought: It is 3.",
    ]
    assert notebook.trace.task.objective == "1+2"
    assert notebook.trace.outcome.result_summary == "It is 3."


def test_case_03_tool_runs_that_do_not_say_their_call_are_matched_by_tool(config, notebook):
    both = calls("Both.", add={"a": 1, "b": 2}, look_up={"word": "kp"})

    executor(both, says("half"), says("done"), tools=[add, look_up]).invoke(GO, config)

    assert sorted(notebook.story) == sorted(
        [
            "thought: Both.",
            "tool_call add(a=1, b=2)",
            "tool_call look_up(word='kp')",
            "observation add: 3",
            "observation look_up: Error: kp is not in the book",
            "thought: done",
        ]
    )
