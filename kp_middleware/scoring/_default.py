"""What a process shares when nobody gives it another: one model, loaded at first use."""

from typing import Final

from kp_middleware.scoring._minilm import MiniLMEmbedder

DEFAULT_EMBEDDER: Final = MiniLMEmbedder()
"""Nothing is loaded yet."""
