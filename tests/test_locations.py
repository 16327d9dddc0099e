"""Locations of our files."""

from pathlib import Path

import pytest

from kp_middleware.errors import SettingsFileError
from kp_middleware.locations import cache_folder, database_file, reference_folder, settings_file


@pytest.fixture
def file(home):
    file = home / ".config" / "kp-middleware" / "settings.toml"
    file.parent.mkdir(parents=True)
    return file


def test_everything_has_its_place_below_the_user_s_folders(home):
    assert settings_file() == home / ".config" / "kp-middleware" / "settings.toml"
    assert reference_folder() == home / ".config" / "knowledgepulse"
    assert database_file() == home / "d" / "kp-middleware" / "kp.db"
    assert cache_folder().name == "kp-middleware"


def test_the_environment_names_the_file_of_traces(monkeypatch, home):
    monkeypatch.setenv("KP_DB", "~/mine.db")

    assert database_file() == home / "mine.db"


def test_the_settings_file_names_the_file_of_traces_where_the_environment_does_not(
    file, monkeypatch
):
    file.write_text('db = "/srv/kp.db"')
    assert database_file() == Path("/srv/kp.db")

    monkeypatch.setenv("KP_DB", "")
    assert database_file() == Path("/srv/kp.db")

    monkeypatch.setenv("KP_DB", "/tmp/other.db")
    assert database_file() == Path("/tmp/other.db")


def test_a_settings_file_that_names_no_file_leaves_the_default(file, home):
    file.write_text("threshold = 0.5")

    assert database_file() == home / "d" / "kp-middleware" / "kp.db"


@pytest.mark.parametrize(
    "content", [b"db = 5", b"db = ", b"\xff\xfe"], ids=["a number", "no TOML", "no UTF-8"]
)
def test_a_settings_file_that_cannot_say_is_no_reason_to_take_another(file, monkeypatch, content):
    file.write_bytes(content)
    with pytest.raises(SettingsFileError, match=r"settings\.toml: .*; correct the file"):
        database_file()

    monkeypatch.setenv("KP_DB", "/tmp/other.db")
    assert database_file() == Path("/tmp/other.db")
