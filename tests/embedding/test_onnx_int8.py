import shutil

import numpy as np
import onnx
import pytest
from converted_models import quantized
from onnxruntime import InferenceSession
from tiny_model import build_tiny_model

from kp_middleware.embedding import MiniLMEmbedder
from kp_middleware.errors import EmbedderUnavailableError

WORDS = np.arange(1000, 1100)[None]
SENTENCE = {"input_ids": WORDS, "attention_mask": np.ones_like(WORDS)}


@pytest.fixture
def integers(int8_folder):
    """The quick model in 8-bit integers, read."""
    return onnx.load(int8_folder / "model.onnx")


def vectors_of(model):
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (vectors,) = session.run(None, SENTENCE)
    return vectors[0]


def test_vectors_in_integers_are_nearly_those_in_floats(integers):
    exact, rough = vectors_of(build_tiny_model()), vectors_of(integers)

    lengths = np.linalg.norm(exact, axis=1)
    assert np.all(np.linalg.norm(rough - exact, axis=1) < 0.01 * lengths)
    assert not np.array_equal(rough, exact)


def test_only_the_32_largest_channels_of_a_product_stay_floats(integers):
    graph = integers.graph

    weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}

    assert weights["turn.floats"].shape == (32, 384)
    assert {*range(0, 384, 48)} <= {*weights["turn.large"].tolist()}
    assert weights["turn.integers"].dtype == np.int8
    assert np.abs(weights["turn.integers"]).max() == 63
    assert not weights["turn.integers"][weights["turn.large"]].any()
    assert "turn" not in weights


def test_the_same_model_becomes_the_same_to_the_last_byte(tiny_folder, int8_folder, tmp_path):
    again = quantized(tiny_folder, tmp_path)

    assert (again / "model.onnx").read_bytes() == (int8_folder / "model.onnx").read_bytes()


def test_a_model_without_products_is_refused(monkeypatch, tiny_folder, tmp_path):
    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    model = build_tiny_model()
    model.graph.node.pop()  # the rows of its table are the vectors
    model.graph.node[-1].output[0] = "last_hidden_state"
    onnx.save(model, folder / "model.onnx")
    monkeypatch.setenv("KP_MODEL_PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    with pytest.raises(EmbedderUnavailableError, match="no matrix product with weights"):
        MiniLMEmbedder(precision="int8").embed("hello")
