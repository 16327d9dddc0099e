"""Files that commands write replace none without --force, and only their user can read them."""

import os
import stat

import pytest

WRITING = ("backup", "report", "export")


@pytest.fixture(autouse=True)
def recorded(agent):
    agent("one")


def identity(path):
    """Return the identity and size of a file; readers of a database change its `-shm`."""
    return (path.stat().st_ino, path.stat().st_size) if path.exists() else None


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("command", WRITING)
def test_what_belongs_to_a_database_is_never_replaced(type_command, db, command, suffix):
    beside = db.with_name(db.name + suffix)
    before = identity(beside)
    link = db.with_name("link")
    link.symlink_to(beside)

    results = [type_command(command, str(name), "--force") for name in (beside, link)]

    assert [result.exit_code for result in results] == [2, 2]
    assert "is part of the trace database" in results[0].stderr
    words = "is part of the trace database", "is a dangling link"
    assert any(one in results[1].stderr for one in words)
    assert identity(beside) == before
    assert type_command("list", "--no-headers").stdout.endswith("one\n")


@pytest.mark.parametrize("command", WRITING)
def test_a_file_that_exists_is_replaced_by_force_alone_and_is_for_its_user(
    type_command, tmp_path, command
):
    out = tmp_path / "out"
    out.write_text("mine")

    refused = type_command(command, str(out))

    assert (refused.exit_code, out.read_text()) == (2, "mine")
    assert "exists: choose another name, or replace it with --force" in refused.stderr
    assert type_command(command, str(out), "--force").exit_code == 0
    assert out.read_bytes() != b"mine"
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


@pytest.mark.parametrize("command", [*WRITING, "export --as-recorded", "export --as atif"])
def test_a_link_to_what_is_not_there_is_refused(type_command, tmp_path, command):
    target, link = tmp_path / "elsewhere" / "target", tmp_path / "link"
    target.parent.mkdir()
    link.symlink_to(target)

    results = [type_command(*command.split(), str(link), *force) for force in ([], ["--force"])]

    assert [result.exit_code for result in results] == [2, 2]
    assert "is a dangling link: remove it, or choose another" in results[0].stderr
    assert not target.exists()


@pytest.mark.parametrize("command", ["backup", "report"])
def test_no_file_is_named_like_standard_output(type_command, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)

    result = type_command(command, "-")

    assert (result.exit_code, (tmp_path / "-").exists()) == (2, False)
    assert "give a file name" in result.stderr


def test_what_is_no_ordinary_file_is_never_replaced(type_command, tmp_path):
    os.mkfifo(tmp_path / "pipe")

    result = type_command("export", str(tmp_path / "pipe"), "--force")

    assert result.exit_code == 2
    assert "is not a regular file" in result.stderr
