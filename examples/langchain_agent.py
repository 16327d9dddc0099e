"""A LangChain agent with one callback, which records each run.

    python examples/langchain_agent.py

With OPENAI_API_KEY or ANTHROPIC_API_KEY (and `pip install langchain-openai` or
`langchain-anthropic`) it uses that provider's model, else a scripted one.
"""

import os

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

from kp_langchain import KPCallbackHandler
from kp_langchain.demo import ScriptedModel
from kp_middleware import KnowledgePulse

PROVIDERS = {
    "OPENAI_API_KEY": "openai:gpt-4o-mini",
    "ANTHROPIC_API_KEY": "anthropic:claude-haiku-4-5",
}

TIMETABLE = {("Rome", "Milan"): ["07:10", "09:00"], ("Milan", "Turin"): ["10:30", "12:15"]}

SCRIPT = [
    AIMessage(
        "I look for the first leg.",
        tool_calls=[{"name": "trains", "args": {"start": "Rome", "goal": "Milan"}, "id": "1"}],
    ),
    AIMessage(
        "The 07:10 arrives at 10:09, so the second leg may leave at 10:30.",
        tool_calls=[{"name": "trains", "args": {"start": "Milan", "goal": "Turin"}, "id": "2"}],
    ),
    AIMessage("Take the 07:10 from Rome and the 10:30 from Milan."),
]


@tool
def trains(start: str, goal: str) -> list[str]:
    """Return the morning trains between two cities, if there are any without a change."""
    return TIMETABLE.get((start, goal), [])


def main() -> None:
    """Ask the agent once, and wait until its run is scored."""
    agent = create_agent(model(), [trains])
    question = "How do I get from Rome to Turin by train before noon?"
    with KnowledgePulse(domain="travel") as kp:
        answer = agent.invoke(
            {"messages": [{"role": "user", "content": question}]},
            config={"callbacks": [KPCallbackHandler(kp)]},
        )
        kp.flush(60)
    print(answer["messages"][-1].text)
    print("Now type: kp-middleware show @last")


def model() -> BaseChatModel:
    """Return a model of a provider whose key is set, else a scripted one."""
    for key, name in PROVIDERS.items():
        if os.environ.get(key):
            return init_chat_model(name)
    return ScriptedModel(script=SCRIPT)


if __name__ == "__main__":
    main()
