"""What a tool gave back, in each of the forms that LangChain accepts: pure functions."""

from typing import Final

from langchain_core.messages import ToolMessage

from kp_langchain._messages import messages_of, text_of

_MOST_PARTS: Final = 100  # of a list that a tool gave: it may be a million numbers


def result_of(output: object, call_id: str | None) -> tuple[object, bool]:
    """The result of one call: a message, a Command, a list of these, or any value.

    An artifact beside the message is for the program, not for the model, and is left out.

    Returns:
        Its text, or the value itself where the tool gave no message; and whether the tool says
        that it failed. A plain tuple, because one is made for each call.
    """
    message = output if isinstance(output, ToolMessage) else _message_in(output, call_id)
    if message is not None:
        return text_of(message.content), message.status == "error"
    return "None" if output is None else output, False


def _message_in(output: object, call_id: str | None) -> ToolMessage | None:
    parts = output[:_MOST_PARTS] if isinstance(output, list) else [output]
    messages = [
        message
        for part in parts
        for message in ([part] if isinstance(part, ToolMessage) else _messages_of_command(part))
    ]
    answers = [message for message in messages if message.tool_call_id == call_id]
    return next(reversed(answers or messages), None)


def _messages_of_command(command: object) -> list[ToolMessage]:
    if type(command).__name__ != "Command":  # langgraph's, which may not be installed
        return []
    update = getattr(command, "update", None)
    return [message for message in messages_of(update) if isinstance(message, ToolMessage)]
