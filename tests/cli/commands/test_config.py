"""Each setting, where it comes from, and how to change it."""

import sys
import tomllib

import pytest

from kp_middleware import KnowledgePulse, Settings
from kp_middleware.locations import settings_file
from kp_middleware.testing import StandInEmbedder


@pytest.fixture
def config(as_json):
    """All settings by name."""
    return lambda: {row["setting"]: row for row in as_json("config")}


@pytest.fixture
def file():
    """The user's settings file, whose folder exists."""
    path = settings_file()
    path.parent.mkdir(parents=True)
    return path


def test_every_setting_is_listed_with_what_it_does(config):
    listed = config()

    assert listed.keys() == Settings.model_fields.keys()
    assert [name for name, row in listed.items() if len(row["description"]) < 10] == []
    assert listed["cache_size"]["description"].startswith("The number of earlier traces")


def test_a_setting_says_where_it_comes_from(config, file, home, monkeypatch):
    folder = home / ".config" / "knowledgepulse"
    folder.mkdir()
    (folder / "config.json").write_text('{"defaultDomain": "code", "defaultVisibility": "org"}')
    file.write_text('visibility = "private"\nthreshold = 0.6\n')
    monkeypatch.setenv("KP_THRESHOLD", "0.5")

    listed = config()

    told = {
        name: (listed[name]["value"], listed[name]["origin"])
        for name in ("domain", "visibility", "threshold", "sync", "db")
    }
    assert told == {
        "domain": ("code", "reference files"),
        "visibility": ("private", "settings.toml"),
        "threshold": (0.5, "KP_THRESHOLD"),
        "sync": (False, "default"),
        "db": (listed["db"]["value"], "--db"),
    }


def test_the_api_key_is_not_shown(type_command, monkeypatch):
    monkeypatch.setenv("KP_API_KEY", "kp_5e3c2e7")

    printed = type_command("config").stdout + type_command("config", "get", "api_key").stdout

    assert "5e3c2e7" not in printed
    assert "KP_API_KEY" in printed


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("domain", "general\n"),
        ("threshold", "0.75\n"),
        ("max_per_day", "\n"),
        ("redact_deny", "[]\n"),
        ("agent_id", "\n"),
    ],
)
def test_one_value_is_printed_for_a_script(type_command, name, printed):
    assert type_command("config", "get", name).stdout == printed


@pytest.mark.parametrize(
    ("name", "typed", "expected"),
    [
        ("threshold", "0.8", 0.8),
        ("threshold", "Top 10 %", "top 10%"),
        ("max_per_day", "20", 20),
        ("domain", "code", "code"),
        ("domain", "123", "123"),
        ("sync", "true", True),
        ("enabled", "no", False),
        ("retention_days", "90", 90.0),
        ("redact_deny", "Bluebird, Nimbus", ["Bluebird", "Nimbus"]),
        ("redact_deny", '["/ACME-[0-9]{2,3}/"]', ["/ACME-[0-9]{2,3}/"]),
    ],
)
def test_a_setting_is_kept_for_every_program_that_follows(
    type_command, config, name, typed, expected
):
    result = type_command("config", "set", name, typed)

    assert result.exit_code == 0
    assert (config()[name]["value"], config()[name]["origin"]) == (expected, "settings.toml")
    assert tomllib.loads(settings_file().read_text()) == {name: expected}


def test_a_threshold_that_was_set_decides_and_the_file_is_for_the_user_alone(
    type_command, as_json, db
):
    type_command("config", "set", "threshold", "0.01")

    with KnowledgePulse(db=db, embedder=StandInEmbedder(), sync=True) as kp:
        kp.capture(lambda: kp.tool(str.upper)("a"))()

    (row,) = as_json("list")
    path = settings_file()
    assert row["state"] == "not queued"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert [*path.parent.iterdir()] == [path]


def test_other_lines_and_remarks_stay_as_they_are(type_command, file):
    file.write_text(
        "# mine\n"
        'redact_deny = [\n  "threshold = 1",  # no line of its own\n]\n'
        "threshold = 0.7   # for now\n"
        "\n"
        "[profiles.law]\n"
        "complexity = 0.25\nnovelty = 0.25\ntool_diversity = 0.25\noutcome_confidence = 0.25\n"
    )
    before = file.read_text()

    type_command("config", "set", "threshold", "0.8")
    type_command("config", "set", "domain", "law")

    assert file.read_text() == before.replace("0.7 ", "0.8 ").replace(
        "\n\n[profiles", '\ndomain = "law"\n\n[profiles'
    )


def test_a_link_to_the_settings_file_stays_a_link(type_command, file, tmp_path):
    real = tmp_path / "dotfiles.toml"
    real.write_text("sync = true\n")
    file.symlink_to(real)

    type_command("config", "set", "threshold", "0.8")

    assert file.is_symlink()
    assert real.read_text() == "sync = true\nthreshold = 0.8\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["threshold", "8"], "threshold: must be a number from 0 to 1, or a share from"),
        (["max_per_day", "many"], "max_per_day: Input should be a valid integer"),
        (["enabled", "perhaps"], "is not a valid boolean"),
        (["enabled", ""], "is not a valid boolean"),
        (["max_steps", "9" * 30], "max_steps: Input should be less than or equal to"),
        (["cache_size", "9" * 17], "cache_size: Input should be less than or equal to"),
        (["redact_deny", '["/(/"]'], "redact_deny"),
        (["api_key", "kp_1"], "set KP_API_KEY"),
        (["profiles", "{}"], "such as [profiles.DOMAIN]"),
        (["treshold", "0.8"], "no such setting: treshold (choose from domain, threshold"),
        (["domain", "\udcff"], "surrogates not allowed"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(type_command, words, message):
    result = type_command("config", "set", *words)

    assert result.exit_code in {1, 2}
    assert message in result.stderr
    assert not settings_file().exists()


def test_without_re2_no_pattern_is_written(type_command, monkeypatch):
    monkeypatch.setitem(sys.modules, "re2", None)

    result = type_command("config", "set", "redact_deny", "/(/")

    assert result.exit_code == 1
    assert "kp-middleware[patterns]" in result.stderr
    assert not settings_file().exists()


def test_a_key_in_the_file_is_used_and_hidden(type_command, config, file):
    refused = type_command("config", "set", "api_key", "kp_5e3c2e7")
    file.write_text('api_key = "kp_5e3c2e7"\n')

    assert f"set KP_API_KEY, or add it to {file}" in refused.stderr
    assert config()["api_key"]["origin"] == "settings.toml"
    assert "5e3c2e7" not in type_command("config").stdout


def test_a_variable_that_hides_what_was_set_is_reported(type_command, monkeypatch):
    monkeypatch.setenv("KP_ENABLED", "false")

    result = type_command("config", "set", "enabled", "true")

    assert result.stderr == "KP_ENABLED is set, and overrides the file\n"
    assert settings_file().read_text() == "enabled = true\n"


def test_a_broken_settings_file_is_named_and_left_alone(type_command, file):
    file.write_text("threshold = \n")

    results = [type_command("config"), type_command("config", "set", "threshold", "0.8")]

    assert [result.exit_code for result in results] == [1, 1]
    assert all(f"Error: {file}: " in result.stderr for result in results)
    assert file.read_text() == "threshold = \n"


def test_the_path_of_the_settings_file_is_reported(type_command, as_json):
    path = settings_file()

    assert type_command("config", "path").stdout == f"{path}\n"
    assert as_json("config", "path")["exists"] is False


@pytest.mark.parametrize(
    "value", ['a "quoted" \\ text', "\x7f\x85", "ü日本", "[x]\ny = 1", "# no remark", "'''"]
)
def test_whatever_is_written_is_what_is_read(type_command, file, value):
    file.write_text("# mine\nagent_id = 'me'\n[profiles.law]\n")

    for one in (value, "code", value):
        assert type_command("config", "set", "domain", one).exit_code == 0

    read = tomllib.loads(file.read_text("utf-8"))
    assert read == {"agent_id": "me", "domain": value, "profiles": {"law": {}}}
    assert file.read_text().startswith("# mine\n")
