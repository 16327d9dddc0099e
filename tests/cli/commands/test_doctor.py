"""Is the file sound, and what does the exit code say?"""

import json
from contextlib import closing

import pytest
from sample_runs import put, run, step, with_value

from kp_middleware.database import connect, transaction
from kp_middleware.storage import SQLITE_VERSION, History


@pytest.fixture
def examine(type_command, monkeypatch):
    """Return doctor's findings by check, and the exit code; without the model."""
    monkeypatch.setenv("KP_EMBEDDER", "none")

    def run():
        result = type_command("doctor", "--json")
        return {one["check"]: one for one in json.loads(result.stdout)}, result.exit_code

    return run


def test_a_sound_file_is_reported_with_its_traces_the_disk_and_sqlite(agent, examine, db):
    agent("one")
    db.chmod(0o660)  # shared with a group, as somebody wants it

    found, exit_code = examine()

    assert exit_code == 0
    assert found["file"]["detail"].startswith(f"{db}: 1 run, ")
    assert found["file"]["detail"].endswith(f" integrity ok, SQLite {SQLITE_VERSION}")
    assert {(one["ok"], one["try_later"]) for one in found.values()} == {(True, False)}


def test_a_model_that_the_settings_switch_off_is_not_blamed_on_the_environment(
    examine, type_command, monkeypatch
):
    _ = type_command("config", "set", "embedder", "none")
    monkeypatch.delenv("KP_EMBEDDER")

    detail = examine()[0]["model"]["detail"]

    assert detail == "novelty is 0.5: embedder is none: see kp-middleware config"


@pytest.mark.parametrize("mode", [0o604, 0o602])
def test_a_file_that_every_user_may_open_is_trouble_and_the_remedy_is_named(
    agent, examine, db, mode
):
    agent("one")
    db.chmod(mode)

    found, exit_code = examine()

    assert exit_code == 3
    assert not found["file"]["ok"]
    assert found["file"]["detail"] == (
        f"every user of this machine can open {db} (mode {mode:04o}): chmod 600 {db}*"
    )
    assert db.stat().st_mode & 0o777 == mode


def test_a_file_that_another_program_keeps_locked_is_trouble(agent, examine, db, connection):
    agent("one")
    with transaction(connection):
        found, exit_code = examine()

    assert exit_code == 3
    assert found["file"]["detail"] == (
        f"{db} is locked by another program: close it, or runs will be lost"
    )


@pytest.mark.usefixtures("damaged")
def test_a_damaged_file_is_found_though_it_can_be_opened(examine):
    found, exit_code = examine()

    assert exit_code == 3
    assert not found["file"]["ok"]
    assert "1 run, damaged" in found["file"]["detail"]
    assert found["file"]["detail"].count("restore the readable part: kp-middleware repair")


def test_a_registry_that_is_away_is_reported_from_what_needs_a_hand(agent, examine, monkeypatch):
    agent("one")
    monkeypatch.setenv("KP_API_KEY", "kp_" + "0" * 64)
    monkeypatch.setenv("KP_REGISTRY_URL", "http://127.0.0.1:9")
    alone, exit_code = examine()
    monkeypatch.setenv("KP_REDACT_ENGINES", "gitleaks:/none.toml")
    found, exit_code_beside_others = examine()

    assert "until then nothing is sent" in found["redaction"]["detail"]
    assert (alone["registry"]["ok"], alone["registry"]["try_later"]) == (False, True)
    assert (exit_code, exit_code_beside_others) == (5, 3)


def test_a_file_too_large_for_the_time_is_not_called_damaged(agent, db, kp):
    agent("one " * 5000)
    kp.close()
    with closing(connect(db)) as connection:
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
            " INSERT INTO meta SELECT i, hex(randomblob(20)) FROM n"
        )

        in_no_time, in_time = (
            History(connection).check_integrity(limit_s=0),
            History(connection).check_integrity(),
        )
        (count,) = connection.execute("SELECT count(*) FROM meta").fetchone()

    assert (in_no_time, in_time) == ("not known", "sound")
    assert count == 20000


@pytest.mark.parametrize(("content", "told"), [(None, "does not exist yet"), (b"", "is empty")])
def test_before_the_first_run_there_is_no_file_and_none_is_made(examine, db, content, told):
    if content is not None:
        db.write_bytes(content)

    found, exit_code = examine()

    assert (exit_code, found["file"]["ok"]) == (0, True)
    assert f"{db} {told}: record a run" in found["file"]["detail"]
    assert (db.read_bytes() if db.exists() else None) == content


def test_that_nothing_is_recorded_is_a_warning(examine, monkeypatch):
    monkeypatch.setenv("KP_ENABLED", "false")

    found, exit_code = examine()

    assert (found["settings"]["warning"], exit_code) == (True, 0)
    assert found["settings"]["detail"].startswith("nothing is recorded: enabled is false")


def test_a_variable_that_is_no_setting_is_a_warning_with_the_one_that_is_meant(
    examine, monkeypatch
):
    monkeypatch.setenv("KP_TRESHOLD", "0.5")
    monkeypatch.setenv("KP_MODEL_PATH", "/none")

    found, exit_code = examine()

    assert (found["settings"]["warning"], exit_code) == (True, 0)
    assert found["settings"]["detail"] == "KP_TRESHOLD is not a setting: did you mean KP_THRESHOLD?"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("KP_VISIBILITY", "publik", "Input should be 'private', 'org' or 'network'"),
        ("KP_REGISTRY_URL", "htp:/x", "must begin with https://"),
        ("KP_THRESHOLD", "abc", "fixed: threshold: "),
        ("KP_CACHE_SIZE", "many", "Input should be a valid integer"),
    ],
)
def test_where_a_setting_is_wrong_the_doctor_looks_at_all_the_rest(
    examine, monkeypatch, name, value, words
):
    monkeypatch.setenv("KP_API_KEY", "kp_" + "0" * 64)
    monkeypatch.setenv(name, value)

    found, exit_code = examine()

    assert exit_code == 3
    assert words in found["settings"]["detail"]
    assert found["settings"]["detail"].endswith(f"(from {name})")
    assert found["settings"]["detail"].startswith("nothing is sent until this is fixed: ")
    assert "\n" not in found["settings"]["detail"]
    assert found.keys() == {"settings", "file", "gate", "model", "redaction"}


def test_a_gate_that_was_set_since_is_reported(db, examine, monkeypatch):
    put(db, run("one", step("thought")), with_value(0.5))
    monkeypatch.setenv("KP_THRESHOLD", "top 10%")
    monkeypatch.setenv("KP_MAX_PER_DAY", "20")

    found, _ = examine()

    assert found["gate"]["detail"] == (
        "for new runs: top 10%, at most 20 a day;"
        " 0 of 1 scored run cleared the gate (threshold 0.75)"
    )


def test_a_file_that_cannot_be_read_is_reported_with_the_remedy_and_has_no_runs(agent, examine, db):
    db.write_text("a letter to my aunt, " * 100)
    other, _ = examine()
    db.unlink()
    agent("one")
    with closing(connect(db)) as connection:
        connection.execute("PRAGMA user_version = 6")

    older, exit_code = examine()

    assert (exit_code, older["file"]["ok"]) == (3, False)
    assert f"kp-middleware migrate --db {db}" in older["file"]["detail"]
    assert older["gate"]["detail"].endswith("; the file cannot be read")
    assert "is not an SQLite file; name another file with KP_DB or --db" in other["file"]["detail"]


def test_runs_of_models_that_told_no_tokens_are_counted_with_what_to_do(db, examine):
    put(db, run("one", step("thought")))
    without_models, _ = examine()
    put(db, run("two", step("thought"), model="m", input_tokens=3, output_tokens=1))
    counted, _ = examine()
    put(db, run("three", step("thought"), model="m"))

    found, exit_code = examine()

    assert "tokens" not in without_models
    assert counted["tokens"]["detail"] == "counted in all recent runs with a model: 1"
    assert counted["tokens"]["warning"] is False
    assert (found["tokens"]["ok"], found["tokens"]["warning"], exit_code) == (True, True, 0)
    assert found["tokens"]["detail"].startswith("1 of 2 recent runs with a model have no token")
    assert "stream_usage=True" in found["tokens"]["detail"]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("OTEL_TRACES_SAMPLER", "traceidratio", "not sampled"),
        ("OTEL_SDK_DISABLED", "TRUE", "no spans"),
        ("OPENINFERENCE_HIDE_INPUTS", "true", "hidden"),
        ("TRACELOOP_TRACE_CONTENT", "false", "no texts"),
        ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "100", "truncates"),
    ],
)
def test_what_keeps_spans_from_telling_a_run_is_a_warning(examine, monkeypatch, name, value, words):
    pytest.importorskip("opentelemetry.sdk")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_on")
    monkeypatch.setenv("TRACELOOP_TRACE_CONTENT", "true")
    harmless, _ = examine()
    monkeypatch.setenv(name, value)

    found, _ = examine()

    assert "spans" not in harmless
    assert found["spans"]["warning"]
    assert f"{name}: " in found["spans"]["detail"]
    assert words in found["spans"]["detail"]
