from click.testing import CliRunner

from kp_middleware.cli import main

COLOURED = "\x1b[33mpassword\x1b[0m=\x1b[36mhunter22\x1b[0m\n"


def redact(text, *words):
    return CliRunner().invoke(main, ["redact", *words], input=text)


def test_the_command_prints_colours_as_they_were():
    cleaned = redact(COLOURED).output

    assert cleaned == COLOURED.replace("hunter22", "[REDACTED:password]")


def test_the_command_finds_nothing_in_what_it_printed():
    assert redact(COLOURED, "--check").exit_code == 3

    assert redact(redact(COLOURED).output, "--check").exit_code == 0
