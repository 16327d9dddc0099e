"""What a process shares when nobody gives it another: one model of a kind, loaded at first use."""

from typing import Final, Literal, TypeAlias

from kp_middleware.embedding._minilm import MiniLMEmbedder, Precision

EmbedderName: TypeAlias = Literal["minilm", "minilm-int8", "none"]

DEFAULT_EMBEDDER: Final = MiniLMEmbedder()
"""Nothing is loaded yet."""

_PRECISIONS: Final[dict[str, Precision]] = {"minilm": "fp32", "minilm-int8": "int8"}
_shared = {("minilm", 1): DEFAULT_EMBEDDER}


def shared_embedder(name: EmbedderName, *, threads: int = 1) -> MiniLMEmbedder | None:
    """The process's embedder of a name and number of threads, or None for ``none``."""
    if name == "none":
        return None
    new = MiniLMEmbedder(threads=threads, precision=_PRECISIONS[name])
    return _shared.setdefault((name, threads), new)
