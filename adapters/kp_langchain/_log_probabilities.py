"""What a provider told beside a model's answer, its log-probabilities among it: pure functions."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langchain_core.outputs import LLMResult


def told_beside(response: "LLMResult") -> Mapping[str, object]:
    """Of a chat model's message, or of a completion; nothing where the log-probabilities are cut.

    LangChain's streaming of version 3 keeps those of the last chunk alone: the full stop's.
    """
    if not response.generations or not response.generations[0]:
        return {}
    generation = response.generations[0][0]
    message = getattr(generation, "message", None)
    if message is None:
        return generation.generation_info or {}
    about: Mapping[str, object] = message.response_metadata
    may_be_cut = about.get("output_version") == "v1" and "logprobs" in about
    return {} if may_be_cut and not _cover(about["logprobs"], message.text) else about


def _cover(logprobs: object, text: str) -> bool:
    """Whether they are of most of a text: blanks at its ends, and thinking, may be left out."""
    match logprobs:
        case {"content": [*tokens]} | [*tokens]:
            said = (token.get("token") for token in tokens if isinstance(token, Mapping))
            return 2 * sum(len(str(token)) for token in said) >= len(text)
    return False
