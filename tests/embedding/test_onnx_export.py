import hashlib
import json

import numpy as np
import pytest

SENTENCE = {
    "input_ids": np.array([[101, 7592, 2088, 102]]),  # [CLS] hello world [SEP]
    "attention_mask": np.ones((1, 4), np.int64),
    "token_type_ids": np.zeros((1, 4), np.int64),
}
PADDED = {name: np.pad(values, ((0, 0), (0, 3))) for name, values in SENTENCE.items()}


@pytest.fixture(scope="module")
def session(minilm_folder, minilm):  # noqa: ARG001  # onnxruntime has been muted when it is loaded
    from onnxruntime import InferenceSession

    return InferenceSession(minilm_folder / "model.onnx", providers=["CPUExecutionProvider"])


@pytest.mark.model
def test_the_exported_model_is_the_same_to_the_last_byte(minilm_folder):
    model = (minilm_folder / "model.onnx").read_bytes()

    digest = hashlib.sha256(model).hexdigest()

    assert digest == "f91ae3c0b6979456a02fded63d877eccfb80c3def7561c009e19cd360a2bb2bf"


@pytest.mark.model
def test_the_pooled_output_is_what_fastembed_pools_itself(session, minilm):
    (pooled,) = session.run(["sentence_embedding"], SENTENCE)

    vector = minilm.embed("hello world")

    np.testing.assert_allclose(pooled[0], vector, atol=1e-6)


@pytest.mark.model
def test_padding_changes_nothing(session):
    (alone,) = session.run(["sentence_embedding"], SENTENCE)

    (padded,) = session.run(["sentence_embedding"], PADDED)

    np.testing.assert_allclose(padded, alone, atol=1e-6)


@pytest.mark.model
def test_the_exported_tokenizer_keeps_to_256_tokens(minilm_folder):
    text = (minilm_folder / "tokenizer_config.json").read_text("utf-8")

    tokenizer = json.loads(text)

    assert tokenizer["model_max_length"] == 256
