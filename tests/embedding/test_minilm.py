import hashlib
import logging
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from child_process import Child
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiny_model import TOKENIZER_FILES

from kp_middleware.embedding import MiniLMEmbedder
from kp_middleware.errors import EmbedderUnavailableError


@pytest.mark.model
def test_hello_world_has_the_numbers_of_the_original_model(minilm):
    vector = minilm.embed("hello world")

    golden = [-0.034478, 0.03102, 0.00673, 0.02611, -0.039362]
    np.testing.assert_allclose(vector[:5], golden, atol=1e-3)


@pytest.mark.model
def test_texts_that_mean_the_same_are_nearer_than_others(minilm):
    question, same, other = map(
        minilm.embed,
        ["How do I sort a list?", "What is the way to order an array?", "The cat is asleep."],
    )

    assert question @ same > question @ other + 0.3


@pytest.mark.model
@given(st.text(st.characters(exclude_categories=())))
@example("half of a pair: \ud83d")
@settings(max_examples=25, deadline=None)
def test_a_vector_has_384_dimensions_and_the_length_1(minilm, text):
    vector = minilm.embed(text)

    assert (vector.dtype, vector.shape) == (np.float32, (384,))
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)


@pytest.mark.model
def test_the_name_is_a_fingerprint_of_weights_window_reading_and_precision(minilm):
    name = minilm.name

    assert name == "all-MiniLM-L6-v2:f91ae3c0b697:256:task-first:fp32"


def test_another_model_or_precision_has_another_name(monkeypatch, tiny, tiny_int8, tiny_folder):
    monkeypatch.setenv("KP_MODEL_PATH", str(tiny_folder))
    digest = hashlib.sha256((tiny_folder / "model.onnx").read_bytes()).hexdigest()[:12]

    assert tiny.name == f"all-MiniLM-L6-v2:{digest}:256:task-first:fp32"
    assert tiny_int8.name == f"all-MiniLM-L6-v2:{digest}:256:task-first:int8"


@pytest.mark.model
def test_integers_find_nearly_the_same_similarities(minilm, minilm_int8):
    texts = [
        "How do I sort a list?",
        "What is the way to order an array?",
        "The cat is asleep.",
        "Die Katze schläft.",
        '{"order": "A-1029", "state": "paid"}',
        "def sort(items: list[int]) -> list[int]: return sorted(items)",
    ]

    exact, rough = (np.array([*map(e.embed, texts)]) for e in (minilm, minilm_int8))

    np.testing.assert_allclose(rough @ rough.T, exact @ exact.T, atol=0.02)
    assert not np.array_equal(rough, exact)


@pytest.mark.usefixtures("empty_caches")
def test_integers_are_made_once_for_which_onnx_is_needed(monkeypatch, tiny_folder, tmp_path):
    monkeypatch.setenv("KP_MODEL_PATH", str(tiny_folder))
    vector = MiniLMEmbedder(precision="int8").embed("hello")
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "kp_middleware.embedding._onnx", raising=False)

    again = MiniLMEmbedder(precision="int8").embed("hello")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    with pytest.raises(EmbedderUnavailableError) as raised:
        MiniLMEmbedder(precision="int8").embed("hello")

    np.testing.assert_array_equal(again, vector)
    assert str(raised.value) == (
        "cannot quantize the embedding model to int8: this needs more packages: "
        'pip install "kp-middleware[weights]"; set KP_EMBEDDER to minilm'
    )


def test_a_conversion_that_was_cut_off_is_made_anew(
    monkeypatch, empty_caches, tiny_folder, tiny_int8
):
    monkeypatch.setenv("KP_MODEL_PATH", str(tiny_folder))
    digest = tiny_int8.name.split(":")[1]
    folder = empty_caches / f"all-MiniLM-L6-v2-{digest}-int8"
    partial = folder.with_suffix(".partial")
    for unusable in (folder, partial):
        unusable.mkdir(parents=True)
        (unusable / "leftover").write_bytes(b"the beginning of a model")

    vector = MiniLMEmbedder(precision="int8").embed("hello")

    np.testing.assert_array_equal(vector, tiny_int8.embed("hello"))
    assert {file.name for file in folder.iterdir()} == {"model.onnx", *TOKENIZER_FILES}
    assert not partial.exists()


def test_threads_do_not_spin_and_make_the_same_vector(monkeypatch, tiny_folder, tiny):
    monkeypatch.setenv("KP_MODEL_PATH", str(tiny_folder))
    embedder = MiniLMEmbedder(threads=2)
    text = "The cat is asleep. " * 20

    vector = embedder.embed(text)

    usual, options = (one._model().session.model.get_session_options() for one in (tiny, embedder))
    assert (usual.intra_op_num_threads, usual.inter_op_num_threads) == (1, 1)
    assert options.intra_op_num_threads == 2
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    np.testing.assert_allclose(vector, tiny.embed(text), atol=1e-6)


def test_a_repeat_is_not_embedded_again_and_what_is_given_is_the_callers_own(monkeypatch, tiny):
    vector = tiny.embed("hello").copy()
    monkeypatch.setattr(tiny._model().session, "onnx_embed", None)

    tiny.embed("hello")[:] = 0

    np.testing.assert_array_equal(tiny.embed("hello"), vector)


@pytest.mark.parametrize("limit", [128, 512], ids=["of the download", "of the official folder"])
def test_the_window_is_256_tokens_whatever_the_limit(monkeypatch, tiny_folder, tmp_path, limit):
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "limited"))
    config = (folder / "tokenizer_config.json").read_text()
    (folder / "tokenizer_config.json").write_text(config.replace("512", str(limit)))
    monkeypatch.setenv("KP_MODEL_PATH", str(folder))
    embedder = MiniLMEmbedder()

    inside, at_the_end, outside = (embedder.embed("a " * words + "b") for words in (200, 253, 254))

    assert not np.array_equal(inside, embedder.embed("a " * 201))
    assert not np.array_equal(at_the_end, embedder.embed("a " * 254))
    np.testing.assert_array_equal(outside, embedder.embed("a " * 255))


def test_nothing_is_looked_for_before_the_first_use_and_then_once(
    monkeypatch, tiny_folder, tmp_path
):
    monkeypatch.setenv("KP_MODEL_PATH", str(tmp_path))
    embedder = MiniLMEmbedder()
    with pytest.raises(EmbedderUnavailableError, match="which has no") as first:
        embedder.embed("hello")
    monkeypatch.setenv("KP_MODEL_PATH", str(tiny_folder))

    with pytest.raises(EmbedderUnavailableError) as second:
        embedder.embed("hello")

    assert str(second.value) == str(first.value)


def test_a_model_that_cannot_be_loaded_is_named(monkeypatch, tiny_folder, tmp_path):
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "broken"))
    (folder / "model.onnx").write_bytes(b"this is not a model")
    monkeypatch.setenv("KP_MODEL_PATH", str(folder))

    with pytest.raises(EmbedderUnavailableError) as raised:
        MiniLMEmbedder().embed("hello")

    assert f"the embedding model in {folder} cannot be loaded, replace or remove it: " in str(
        raised.value
    )


def test_threads_that_come_first_together_load_it_once(monkeypatch, caplog, tiny_folder):
    monkeypatch.setenv("KP_MODEL_PATH", str(tiny_folder))
    caplog.set_level(logging.INFO, "kp_middleware.embedding")
    embedder = MiniLMEmbedder()

    with ThreadPoolExecutor(4) as threads:
        vectors = list(threads.map(embedder.embed, ["hello"] * 8))

    np.testing.assert_array_equal(vectors, [vectors[0]] * 8)
    assert len(caplog.messages) == 1


def test_a_forked_child_loads_its_own_and_onnxruntime_reports_nothing_to_its_maker(
    tiny_folder, tmp_path
):
    child = Child(tmp_path, KP_MODEL_PATH=str(tiny_folder))

    in_parent, in_child = child.run("""
import json, os, warnings
warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads
embedder = MiniLMEmbedder()
model = embedder._model()
vector = embedder.embed("hello").tolist()
reading, writing = os.pipe()
if os.fork() == 0:
    assert embedder._model() is not model
    os.write(writing, json.dumps(embedder.embed("hello").tolist()[:9]).encode())
    os._exit(0)
os.close(writing)
os.wait()
print_json([vector[:9], json.loads(os.read(reading, 9999))])
""")

    assert in_child == in_parent
    assert not list(tmp_path.rglob("*onnxruntime*"))
