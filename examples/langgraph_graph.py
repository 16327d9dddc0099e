"""A LangGraph graph of your own, with one callback.

    python examples/langgraph_graph.py

The writer drafts, the critic judges, and the writer tries again until the critic approves.
"""

from operator import add
from typing import Annotated, Literal, TypedDict

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, StateGraph

from kp_langchain import KPCallbackHandler
from kp_langchain.demo import ScriptedModel
from kp_middleware import KnowledgePulse

WRITER = ScriptedModel(
    script=[
        AIMessage("The sea is big."),
        AIMessage("The sea holds 1.3 billion cubic kilometres of water."),
    ]
)
CRITIC = ScriptedModel(script=[AIMessage("How big? Give a number."), AIMessage("Good.")])


class State(TypedDict):
    """The state that both nodes share."""

    messages: Annotated[list[tuple[str, str]], add]
    drafts: Annotated[list[AIMessage], add]
    verdicts: Annotated[list[AIMessage], add]


def write(state: State) -> dict[str, list[AIMessage]]:
    """Add a draft."""
    return {"drafts": [WRITER.invoke([*state["messages"], *state["drafts"]])]}


def judge(state: State) -> dict[str, list[AIMessage]]:
    """Judge the last draft."""
    draft = ("user", state["drafts"][-1].text)
    return {"verdicts": [CRITIC.invoke([draft, *state["verdicts"]])]}


def content(state: State) -> Literal["write", "__end__"]:
    """Return the next node."""
    return END if state["verdicts"][-1].text == "Good." else "write"


def main() -> None:
    """Run the graph once, and wait until its run is scored."""
    graph = (
        StateGraph(State)
        .add_node(write)
        .add_node(judge)
        .add_edge(START, "write")
        .add_edge("write", "judge")
        .add_conditional_edges("judge", content)
        .compile(name="essay")
    )
    with KnowledgePulse() as kp:
        result = graph.invoke(
            {
                "messages": [
                    {
                        "role": "user",
                        "content": "Write a sentence about the sea, with a number in it.",
                    }
                ]
            },
            config={"callbacks": [KPCallbackHandler(kp)]},
        )
        kp.flush(60)
    print(result["drafts"][-1].text)
    print("Now type: kp-middleware show @last")


if __name__ == "__main__":
    main()
