"""Models that an embedder has loaded, or made smaller."""

import pytest

from kp_middleware.embedding import MiniLMEmbedder


def loaded_from(folder, *, precision="fp32", cache=None):
    embedder = MiniLMEmbedder(precision=precision)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KP_MODEL_PATH", str(folder))
        environment.setenv("XDG_CACHE_HOME", str(cache or folder))
        embedder.embed("loads it")
    return embedder


def quantized(folder, cache):
    """The folder of a model in 8-bit integers, made in this cache."""
    loaded_from(folder, precision="int8", cache=cache)
    (made,) = cache.glob("kp-middleware/*-int8/model.onnx")
    return made.parent
