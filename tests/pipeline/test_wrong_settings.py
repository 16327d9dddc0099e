"""With an invalid setting outside of it, a program records, sends nothing, and says so."""

import logging
import os
import sqlite3
from contextlib import closing

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kp_middleware import KnowledgePulse, Settings, current_trace
from kp_middleware.locations import settings_file
from kp_middleware.testing import StandInEmbedder

SHARE = 'must be a number from 0 to 1, or a share from "top 1%" to "top 100%"'
VARIABLES = {
    "KP_THRESHOLD": ("high", SHARE),
    "KP_VISIBILITY": ("publik", "should be 'private', 'org' or 'network'"),
    "KP_PRIVACY_LEVEL": ("strict", "should be 'aggregated', 'federated' or 'private'"),
    "KP_MAX_PER_DAY": ("ten", "should be a valid integer"),
    "KP_REGISTRY_URL": ("htp:/x", "must begin with https://"),
    "KP_API_KEY": ("two words", "printable ASCII"),
    "KP_ENABLED": ("maybe", "should be a valid boolean"),
    "KP_SYNC": ("sometimes", "should be a valid boolean"),
    "KP_EMBEDDER": ("large", "should be 'minilm', 'minilm-int8' or 'none'"),
    "KP_PROFILES": ("{", "must be a table of weights by domain"),
    "KP_CACHE_SIZE": ("-1", "should be greater than or equal to 0"),
    "KP_RETENTION_DAYS": ("0", "should be greater than 0"),
    "KP_REDACT_ENGINES": ("trufflehog", "gitleaks:FILE or presidio:MODEL"),
    "KP_REDACT_DENY": ("/a/,b", "write a JSON list"),
    "KP_REDACT_PHONE_REGIONS": ("Germany", "must be two capital letters"),
}
SETTINGS_FILE = "kp-middleware/settings.toml"
FILES = {
    "no TOML": (SETTINGS_FILE, b"domain = 'code'\nthreshold = \n", "at line 2"),
    "a folder": (SETTINGS_FILE, None, "settings.toml: "),  # which root cannot read either
    "no UTF-8": (SETTINGS_FILE, b"\xff\xfe\x00", "correct the file"),
    "a wrong type": (SETTINGS_FILE, b"# mine\ncache_size = 'x'\n", "cache_size: "),
    "a wrong word": (SETTINGS_FILE, b"visibility = 'publik'\n", "'private', 'org' or 'network'"),
    "an unknown key": (SETTINGS_FILE, b"\nvisibilty = 'private'\n", "did you mean visibility?"),
    "a table that is none": (SETTINGS_FILE, b"profiles = 3\n", "a table of weights by domain"),
    "too deep": (SETTINGS_FILE, b"x = " + b"[" * 9000, "settings.toml: "),
    "no JSON": (
        "knowledgepulse/auth.json",
        b"{",
        "auth.json: it cannot be read: not a JSON object",
    ),
    "no object": (
        "knowledgepulse/auth.json",
        b"[]",
        "auth.json: it cannot be read: not a JSON object",
    ),
    "too deep a JSON": ("knowledgepulse/auth.json", b"[" * 99_999, "not a JSON object"),
    "too deep a config": (
        "knowledgepulse/config.json",
        b'{"a":' * 99_999,
        "config.json: it cannot be read: not a JSON object",
    ),
    "a key that is none": ("knowledgepulse/auth.json", b'{"apiKey": 5}', "must be a string"),
    "a URL that is none": ("knowledgepulse/config.json", b'{"registryUrl": "x"}', "https://"),
    "half of a config": (
        "knowledgepulse/config.json",
        b'{"defaultVisibility": "private"',
        "config.json: it cannot be read",
    ),
    "a wrong visibility": (
        "knowledgepulse/config.json",
        b'{"defaultVisibility": "all"}',
        "config.json: defaultVisibility",
    ),
}
MAY_HAVE_SAID_PRIVATE = {
    *("no TOML", "a folder", "no UTF-8", "a wrong word", "too deep"),
    *("too deep a config", "half of a config", "a wrong visibility"),
}
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
NEAR = st.sampled_from(
    ["0.5", "top 10%", "true", "0", "none", "[]", "{}", "/(/", "https://a.b", "~"]
)

NAMES = sorted({*Settings.model_fields} - {"max_queue_bytes"})  # 0 is right, and drops every run


@pytest.fixture
def record(registry):
    """Records one run that would clear, with a key; what came of it in the file."""

    def run(**settings):
        mine = {"registry_url": registry.url, "api_key": registry.api_key, **settings}
        with KnowledgePulse(embedder=StandInEmbedder(), **mine) as kp:
            work(kp)
            kp.flush(30)
        return stored(kp.settings.db)

    return run


@pytest.fixture
def write(home):
    """Writes a file below the user's folder of configurations."""

    def to(name, content):
        file = home / ".config" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            file.mkdir()
        else:
            file.write_bytes(content)
        return file

    return to


def work(kp):
    @kp.capture
    def answer(question):
        current_trace().thought("I look it up")
        kp.tool(name="search")(str.upper)(question)
        current_trace().outcome(confidence=1.0)
        return "42"

    assert answer("What is six times seven?") == "42"


def stored(db):
    with closing(sqlite3.connect(db)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute("SELECT * FROM traces ORDER BY seq")]


def errors(caplog):
    return [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]


@pytest.mark.parametrize("name", VARIABLES)
def test_a_wrong_variable_is_named_with_what_is_allowed_and_nothing_is_sent(
    name, record, registry, caplog, monkeypatch
):
    monkeypatch.setenv(name, VARIABLES[name][0])

    runs = record(threshold=0.1)

    assert (len(runs), registry.requests) == (1, ())
    [said] = errors(caplog)
    assert f"(from {name})" in said
    assert VARIABLES[name][1] in said


@pytest.mark.parametrize("case", FILES)
def test_a_wrong_file_is_named_and_nothing_is_sent(case, record, registry, write, caplog):
    name, content, words = FILES[case]
    file = write(name, content)

    [run] = record(threshold=0.1)

    assert registry.requests == ()
    assert (run["visibility"] == "private") == (case in MAY_HAVE_SAID_PRIVATE)
    [said] = errors(caplog)
    assert str(file) in said
    assert words in said


def test_several_pipelines_say_it_once_and_each_in_its_stats(record, db, caplog, monkeypatch):
    monkeypatch.setenv("KP_CACHE_SIZE", "many")
    monkeypatch.setenv("KP_SYNC", "sometimes")

    record()
    record()

    [said] = errors(caplog)
    trouble = KnowledgePulse(db=db, embedder=None).stats().trouble
    assert "nothing is sent until this is corrected" in trouble
    for words in said, trouble:
        assert "KP_CACHE_SIZE" in words
        assert "KP_SYNC" in words


@pytest.mark.parametrize(
    ("name", "setting", "strictest"),
    [
        ("KP_VISIBILITY", "visibility", "private"),
        ("KP_PRIVACY_LEVEL", "privacy_level", "aggregated"),
        ("KP_THRESHOLD", "threshold", 1.0),
        ("KP_MAX_PER_DAY", "max_per_day", 0),
    ],
)
def test_where_it_is_not_known_what_may_leave_nothing_may(
    name, setting, strictest, write, monkeypatch
):
    write(SETTINGS_FILE, b"visibility='org'\nprivacy_level='private'\nmax_per_day=9")
    monkeypatch.setenv(name, "oops")

    kp = KnowledgePulse(embedder=None)

    assert getattr(kp.settings, setting) == strictest


def test_what_cleared_meanwhile_is_sent_when_the_setting_is_right(record, registry, monkeypatch):
    monkeypatch.setenv("KP_CACHE_SIZE", "many")
    [before] = record(threshold=0.1)
    monkeypatch.setenv("KP_CACHE_SIZE", "10")

    [after, _] = record(threshold=0.1)

    assert '"delivery": "wrong_setting"' in before["reason_args"]
    assert "delivery" not in after["reason_args"]
    assert len(registry.documents) == 2


def test_what_was_decided_under_a_broken_threshold_never_leaves_by_itself(
    record, registry, monkeypatch
):
    monkeypatch.setenv("KP_THRESHOLD", "high")
    record()
    monkeypatch.setenv("KP_THRESHOLD", "0.1")

    [before, after] = record()

    assert (before["decision"], after["decision"]) == ("withhold", "forward")
    assert len(registry.documents) == 1


def test_a_login_without_its_registry_is_reported_once_and_in_the_stats(db, write, caplog):
    write("knowledgepulse/auth.json", b'{"apiKey": "kp_1", "agentId": "agent-1"}')

    trouble = [KnowledgePulse(db=db, embedder=None).stats().trouble for _ in range(2)][1]

    told = [one for one in caplog.messages if "auth.json" in one]
    assert told == [trouble]
    assert "does not name its registry" in trouble
    assert "kp_1" not in trouble


@pytest.mark.parametrize("brackets", [b"[", b'{"a":'], ids=["lists", "objects"])
def test_a_login_beside_a_config_that_is_nested_too_deeply_ends_nothing(
    brackets, db, registry, write
):
    write("knowledgepulse/config.json", brackets * 99_999)
    write("knowledgepulse/auth.json", b'{"apiKey": "kp_1", "agentId": "agent-1"}')

    with KnowledgePulse(db=db, embedder=None, registry_url=registry.url, threshold=0) as kp:
        work(kp)
        trouble = kp.stats().trouble

    assert (len(stored(db)), registry.requests) == (1, ())
    assert "config.json: it cannot be read: not a JSON object" in trouble


@pytest.mark.parametrize("below", ["", "file/kp.db"], ids=["a folder", "below a file"])
def test_where_no_file_can_be_runs_go_to_the_usual_one(
    below, record, registry, home, tmp_path, caplog, monkeypatch
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("KP_DB", str(tmp_path / below))

    runs = record(threshold=0.1)

    assert (len(runs), registry.requests) == (1, ())
    assert len(stored(home / "d" / "kp-middleware" / "kp.db")) == 1
    assert "(from KP_DB)" in errors(caplog)[0]


def test_a_home_that_nobody_knows_ends_nothing(record, monkeypatch, db):
    [monkeypatch.delenv(name) for name in os.environ if name == "HOME" or name[:4] == "XDG_"]
    monkeypatch.setattr(os, "getuid", lambda: 987_654, raising=False)

    assert len(record(db=db)) == 1
    assert settings_file().is_absolute()  # no other's in the working folder


def test_a_home_that_cannot_be_looked_into_ends_nothing(record, monkeypatch, db):
    monkeypatch.setenv("XDG_DATA_HOME", f"/{'x' * 300}")  # an error, as a folder of another user is

    assert len(record(db=db)) == 1


def test_neither_an_unknown_variable_nor_an_empty_one_stops_anything(
    record, registry, caplog, monkeypatch
):
    monkeypatch.setenv("KP_TRESHOLD", "0.9")
    monkeypatch.setenv("KP_DOMAIN", "")

    record(threshold=0.1)
    record(threshold=0.1)

    told = [one for one in caplog.messages if "KP_TRESHOLD" in one]
    assert told == ["KP_TRESHOLD is not a setting: did you mean KP_THRESHOLD?"]
    assert errors(caplog) == []
    assert len(registry.documents) == 2


@pytest.mark.parametrize("name", ["KP_DB", "KP_REGISTRY_URL", "KP_API_KEY", "KP_PROFILES"])
def test_what_was_given_is_in_no_message(name, caplog, monkeypatch):
    monkeypatch.setenv(name, "https://me:hunter-2@a b/\0"[:-1])

    told = f"{KnowledgePulse(embedder=None).stats().trouble}{caplog.text}"

    assert "hunter-2" not in told or name == "KP_DB"


@pytest.mark.parametrize("make", [KnowledgePulse, Settings])
@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"treshold": 0.5}, "treshold\n.*did you mean threshold?"),
        ({"threshold": "high"}, "threshold\n.*a number from 0 to 1"),
        ({"visibility": "publik"}, "visibility\n.*'private', 'org' or 'network'"),
        ({"registry_url": "htp:/x"}, "registry_url\n.*must begin with https://"),
        ({"registry_url": "http://registry.example"}, "registry_url\n.*https"),
        ({"api_key": "two words"}, "api_key\n.*without spaces"),
    ],
)
def test_a_wrong_keyword_raises_and_names_it_and_what_is_allowed(make, keywords, words):
    with pytest.raises(ValueError, match=words) as raised:
        make(**keywords)

    assert "://:" not in str(raised.value)
    assert "errors.pydantic.dev" not in str(raised.value)


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("embedder", "none"),
        ("gate", "top 10%"),
        ("gate", 0.5),
        ("exporter", "https://registry.example"),
    ],
)
def test_what_is_no_embedder_gate_or_exporter_is_refused_at_once(db, keyword, value):
    with pytest.raises(TypeError, match=f"^{keyword} (must be|is)"):
        KnowledgePulse(db=db, **{"embedder": None, keyword: value})


@hypothesis_settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.dictionaries(st.sampled_from(NAMES), TEXTS | NEAR, max_size=3))
def test_whatever_the_variables_say_a_program_runs_and_what_is_wrong_keeps_it_from_sending(
    tmp_path_factory, registry, said
):
    assume(not said.get("db", "").strip().startswith(("/", "~")))  # a file that outlives the test
    folder = tmp_path_factory.mktemp("any")
    before = len(registry.requests)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_DATA_HOME", str(folder / "d"))
        [patch.setenv(f"KP_{name.upper()}", text) for name, text in said.items()]
        with KnowledgePulse(
            embedder=None, registry_url=registry.url, api_key=registry.api_key, threshold=0.0
        ) as kp:
            work(kp)
            kp.flush(30)

        if kp.settings.enabled:
            assert len(stored(kp.settings.db)) == 1
        if kp.settings.problems:
            assert len(registry.requests) == before


def test_switching_on_everywhere_survives_a_broken_environment(run_child, db, write):
    pytest.importorskip("langchain_core")
    write(SETTINGS_FILE, b"threshold = ")
    code = """
        import logging
        logging.disable()
        import kp_langchain
        from langchain_core.language_models import FakeListChatModel
        from kp_middleware import KnowledgePulse
        model = FakeListChatModel(responses=["an answer"])
        print(model.invoke("a question").content)
        kp_langchain.enable()
        print(model.invoke("another question").content)
        KnowledgePulse.default().close()
    """

    printed = run_child(code, KP_TRACING="true", KP_THRESHOLD="high", KP_EMBEDDER="none")

    assert printed == "an answer\n" * 2
    assert [run["visibility"] for run in stored(db)] == ["private"] * 2
