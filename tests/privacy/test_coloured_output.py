from click.testing import CliRunner

from kp_middleware.cli import main

COLOURED = "\x1b[33mpassword\x1b[0m=\x1b[36mhunter22\x1b[0m\n"


def test_the_command_prints_colours_as_they_were_and_finds_nothing_in_what_it_printed():
    printed = CliRunner().invoke(main, ["redact"], input=COLOURED).output
    checked = CliRunner().invoke(main, ["redact", "--check"], input=printed)

    assert printed == COLOURED.replace("hunter22", "[REDACTED:password]")
    assert checked.exit_code == 0
