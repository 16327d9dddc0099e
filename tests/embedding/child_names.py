"""Questions of child processes to an embedder, and the form of their answers."""

import json
import time
from typing import Any

from kp_middleware.embedding import MiniLMEmbedder
from kp_middleware.errors import EmbedderNotReadyError, EmbedderUnavailableError

__all__ = ["EmbedderUnavailableError", "MiniLMEmbedder", "ask", "ask_until_ready", "print_json"]


def ask(embedder: MiniLMEmbedder) -> dict[str, Any]:
    """The error, or that it worked; and how long it took."""
    began_at = time.monotonic()
    try:
        words = f"{len(embedder.embed('hello world'))} dimensions"
    except (EmbedderNotReadyError, EmbedderUnavailableError) as exc:
        words = f"{type(exc).__name__}: {exc}"
    return {"words": words, "took_s": time.monotonic() - began_at}


def ask_until_ready(embedder: MiniLMEmbedder) -> dict[str, Any]:
    """The first answer other than to ask again later."""
    answer = ask(embedder)
    while answer["words"].startswith("EmbedderNotReadyError"):
        time.sleep(0.05)
        answer = ask(embedder)
    return answer


def print_json(value: object) -> None:
    """Print it for the parent."""
    print(json.dumps(value))
