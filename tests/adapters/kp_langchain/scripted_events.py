"""The events of one run, as LangChain calls a handler with them."""

import uuid

from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_notebook import Notebook

from kp_langchain import KPCallbackHandler


def answering(message):
    """The result of a chat model that answers with one message."""
    return LLMResult(generations=[[ChatGeneration(message=message)]])


def recorded(inputs="go", *, response=None, output=None, **result):
    """A run in which a model answers once and one tool is called, if a result is given."""
    notebook, root, model, tool = Notebook(), uuid.uuid4(), uuid.uuid4(), uuid.uuid4()
    handler = KPCallbackHandler(notebook)
    handler.on_chain_start({}, inputs, run_id=root, name="agent")
    handler.on_chat_model_start({}, [[]], run_id=model, parent_run_id=root)
    response = answering(AIMessage("Hm.")) if response is None else response
    handler.on_llm_end(response, run_id=model, parent_run_id=root)
    if result:
        handler.on_tool_start(
            {"name": "add"}, "{}", run_id=tool, parent_run_id=root, inputs={}, tool_call_id="1"
        )
        handler.on_tool_end(result["result"], run_id=tool, parent_run_id=root)
    handler.on_chain_end(output, run_id=root)
    return notebook.run
