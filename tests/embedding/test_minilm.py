import hashlib
import logging
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from child_process import Child
from hypothesis import example, given, settings
from hypothesis import strategies as st

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


def test_another_model_has_another_name(tiny, tiny_folder):
    digest = hashlib.sha256((tiny_folder / "model.onnx").read_bytes()).hexdigest()

    name = tiny.name

    assert name == f"all-MiniLM-L6-v2:{digest[:12]}:256:task-first:fp32"


def test_another_reading_has_another_name(monkeypatch, tiny, tiny_folder):
    monkeypatch.setenv("KP_MODEL_PATH", str(tiny_folder))
    specified = MiniLMEmbedder(reading="specified")

    name = specified.name

    assert name == tiny.name.replace(":task-first:", ":specified:")


def test_another_precision_has_another_name(tiny, tiny_int8):
    name = tiny_int8.name

    assert name == tiny.name.replace(":fp32", ":int8")


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
def test_integers_are_made_once(monkeypatch, tiny_folder):
    monkeypatch.setenv("KP_MODEL_PATH", str(tiny_folder))
    vector = MiniLMEmbedder(precision="int8").embed("hello")
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "kp_middleware.embedding._onnx", raising=False)

    again = MiniLMEmbedder(precision="int8").embed("hello")

    np.testing.assert_array_equal(again, vector)


@pytest.mark.usefixtures("empty_caches")
def test_without_onnx_integers_name_the_remedy(monkeypatch, tiny_folder):
    monkeypatch.setenv("KP_MODEL_PATH", str(tiny_folder))
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "kp_middleware.embedding._onnx", raising=False)

    with pytest.raises(EmbedderUnavailableError) as raised:
        MiniLMEmbedder(precision="int8").embed("hello")

    assert str(raised.value) == (
        "cannot quantize the embedding model to int8: this needs more packages: "
        'pip install "kp-middleware[weights]"; set KP_EMBEDDER to minilm'
    )


def test_a_conversion_to_integers_that_was_cut_off_is_made_anew(
    monkeypatch, empty_caches, tiny_folder, tiny_int8
):
    monkeypatch.setenv("KP_MODEL_PATH", str(tiny_folder))
    digest = tiny_int8.name.split(":")[1]
    folder = empty_caches / f"all-MiniLM-L6-v2-{digest}-int8"
    left = folder.with_suffix(".partial")
    left.mkdir(parents=True)
    (left / "model.onnx").write_bytes(b"half of it")

    vector = MiniLMEmbedder(precision="int8").embed("hello")

    np.testing.assert_array_equal(vector, tiny_int8.embed("hello"))
    assert not left.exists()


def test_one_thread_is_what_a_text_gets(tiny):
    options = tiny._model().session.model.get_session_options()

    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (1, 1)


def test_more_threads_do_not_spin(monkeypatch, tiny_folder):
    monkeypatch.setenv("KP_MODEL_PATH", str(tiny_folder))
    embedder = MiniLMEmbedder(threads=2)

    options = embedder._model().session.model.get_session_options()

    assert options.intra_op_num_threads == 2
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


@pytest.mark.model
def test_more_threads_make_the_same_vectors(monkeypatch, minilm_folder, minilm):
    monkeypatch.setenv("KP_MODEL_PATH", str(minilm_folder))
    text = "The cat is asleep. " * 20

    vector = MiniLMEmbedder(threads=2).embed(text)

    np.testing.assert_allclose(vector, minilm.embed(text), atol=1e-6)


def test_what_a_repeat_is_given_is_its_own(tiny):
    vector = tiny.embed("hello")

    vector[:] = 0

    assert tiny.embed("hello").any()


@pytest.mark.model
def test_an_exact_repeat_is_not_embedded_again(minilm):
    text = "Book the flight that leaves before nine. " * 20

    first_s, repeat_s = (cpu_s(minilm, text) for _ in range(2))

    assert repeat_s < first_s / 5


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


def test_nothing_is_looked_for_before_the_first_use(monkeypatch, tmp_path):
    monkeypatch.setenv("KP_MODEL_PATH", str(tmp_path))
    embedder = MiniLMEmbedder()

    with pytest.raises(EmbedderUnavailableError, match="which has no"):
        embedder.embed("hello")


def test_that_there_is_no_model_is_decided_once(monkeypatch, tiny_folder, tmp_path):
    monkeypatch.setenv("KP_MODEL_PATH", str(tmp_path))
    embedder = MiniLMEmbedder()
    with pytest.raises(EmbedderUnavailableError) as first:
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


def test_a_forked_child_loads_its_own(tiny_folder, tmp_path):
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
tell([vector[:9], json.loads(os.read(reading, 9999))])
""")

    assert in_child == in_parent


def test_nothing_heavy_is_imported_before_the_first_use(child):
    heavy = child.run("""
import sys
import time
import kp_middleware.embedding
MiniLMEmbedder()
tell(sorted({"fastembed", "huggingface_hub", "onnx", "onnxruntime"} & sys.modules.keys()))
""")

    assert heavy == []


def test_onnxruntime_reports_nothing_to_its_maker(tiny_folder, tmp_path):
    child = Child(tmp_path, KP_MODEL_PATH=str(tiny_folder))

    child.run("tell(ask(MiniLMEmbedder()))")

    assert not list(tmp_path.rglob("*onnxruntime*"))


@pytest.mark.model
@pytest.mark.usefixtures("empty_caches")
def test_a_model_that_cannot_be_loaded_does_not_hide_the_next_place(tiny_folder, tmp_path):
    snapshot = (
        tmp_path / "fastembed" / "models--Qdrant--all-MiniLM-L6-v2-onnx" / "snapshots" / "abc"
    )
    shutil.copytree(tiny_folder, snapshot)
    (snapshot / "model.onnx").write_bytes(b"cut off")
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("abc")

    embedder = MiniLMEmbedder()

    assert embedder.embed("hello world")[0] == pytest.approx(-0.034478, abs=1e-3)


def cpu_s(embedder, text):
    """Seconds of this thread for one text."""
    started = time.thread_time()
    embedder.embed(text)
    return time.thread_time() - started
