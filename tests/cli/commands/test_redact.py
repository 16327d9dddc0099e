"""The command that cleans what is given to it, by the user's own settings."""

import codecs
import json

import pytest
from click.testing import CliRunner

from kp_middleware.cli import main

TEXT = "see\nanna@example.org, password=hunter2 and\nbob@example.org\n"
CLEANED = "see\n[REDACTED:email], password=[REDACTED:password] and\n[REDACTED:email]\n"
LINES = '{"to":"anna@example.org","n":1.50}\n\n{"n": 2}\n'


@pytest.fixture
def redact():
    """Types the command with this on its standard input."""
    return lambda text, *words: CliRunner().invoke(main, ["redact", *words], input=text)


def test_a_text_is_printed_without_what_had_to_go(redact):
    result = redact(TEXT)

    assert (result.stdout, result.stderr, result.exit_code) == (CLEANED, "", 0)


def test_a_file_can_be_named(redact, tmp_path):
    file = tmp_path / "x.log"
    file.write_text(TEXT)

    assert redact("", str(file)).stdout == CLEANED
    assert redact(TEXT, "-").stdout == CLEANED
    assert redact("no line end").stdout == "no line end"


def test_contacts_stay_at_the_level_private_of_an_option_or_the_settings(redact, monkeypatch):
    text, cleaned = (
        "anna@example.org password=hunter2",
        "anna@example.org password=[REDACTED:password]",
    )
    option = redact(text, "--level", "private")
    monkeypatch.setenv("KP_PRIVACY_LEVEL", "private")

    assert option.stdout == redact(text).stdout == cleaned


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ('{"password": "x", "n": 1.50}\n', '{"password": "[REDACTED:password]", "n": 1.5}\n'),
        ('{"n": 1.50,\n"m": 2}', '{"n": 1.50,\n"m": 2}'),
        ('[\n "a@b.example"\n]\n', '[\n  "[REDACTED:email]"\n]\n'),
        (LINES, '{"to": "[REDACTED:email]", "n": 1.5}\n\n{"n": 2}\n'),
        ('{"a": "a@b.example", "a": 1}\n', '{"a": "[REDACTED:email]", "a": 1}\n'),
        ('{"a": 1}\nanna@example.org\n', '{"a": 1}\n[REDACTED:email]\n'),
        ('"a@b.example"', '"[REDACTED:email]"'),
    ],
    ids=["JSON", "nothing to do", "pretty", "lines", "a key twice", "not all lines", "a string"],
)
def test_json_stays_json_and_what_is_clean_stays_as_it_is(redact, document, expected):
    assert redact(document).stdout == expected


def test_a_report_says_what_goes_and_where_and_never_the_value(redact):
    report, checked = redact(TEXT, "--report"), redact(TEXT, "--check", "--report")
    as_json = redact(LINES, "--report", "--json")

    assert report.stdout == checked.stdout
    assert report.stdout.splitlines() == [
        "kind\tcount\tpath",
        "email\t1\tline 2",
        "email\t1\tline 3",
        "password\t1\tline 2",
    ]
    assert (report.exit_code, checked.exit_code) == (0, 3)
    assert json.loads(as_json.stdout) == [{"kind": "email", "count": 1, "path": "line 1: to"}]


def test_a_check_ends_with_three_where_something_would_go_and_else_is_quiet(redact):
    found, nothing = redact(TEXT, "--check"), redact("nothing", "--check")

    assert (found.stdout, found.exit_code) == ("", 3)
    assert found.stderr == "2 email, 1 password would be redacted\n"
    assert (nothing.output, nothing.exit_code) == ("", 0)


def test_the_user_s_own_rules_are_followed(redact, monkeypatch):
    monkeypatch.setenv("KP_REDACT_DENY", "Bluebird")
    monkeypatch.setenv("KP_REDACT_ALLOW", "team@example.org")
    monkeypatch.setenv("KP_REDACT_NUMBERED", "true")

    cleaned = redact("bluebird: team@example.org to anna@example.org").stdout

    assert cleaned == "[REDACTED:denied]: team@example.org to [REDACTED:email#1]"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("KP_REDACT_ENGINES", "gitleaks:/none.toml", "engine_missing at gitleaks:/none.toml"),
        ("KP_REDACT_ENGINES", "trufflehog", "redact_engines"),
        ("KP_REDACT_DENY", "/a/,b", "write a JSON list"),
    ],
)
def test_a_rule_that_cannot_be_followed_prints_nothing_of_the_text(
    redact, monkeypatch, name, value, words
):
    monkeypatch.setenv(name, value)

    assert_refused(redact("a secret 1"), words)


def assert_refused(result, words):
    """Nothing is printed but why."""
    assert (result.stdout, result.exit_code) == ("", 1)
    assert words in result.stderr


ENCODINGS = ("utf-8-sig", "utf-16", "utf-16-be-sig", "utf-32")


def encoded(text, encoding):
    if encoding == "utf-16-be-sig":
        return codecs.BOM_UTF16_BE + text.encode("utf-16-be")
    return text.encode(encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_text_is_read_by_its_mark(redact, encoding):
    content = encoded(f"é {TEXT}", encoding)

    assert redact(content).stdout == f"é {CLEANED}"
    assert redact(content, "--check").exit_code == 3


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[" * 70 + "]" * 70, "too_deep"),
        ("x" * 1_048_577, "no line end"),
        (b"one\n\0two three\n", "character 4 is NUL: convert it to UTF-8"),
        ("anna@example.org é".encode("latin1"), "byte 17 is not utf-8"),
        (codecs.BOM_UTF16_LE + b"a\0b", "is not utf-16"),
    ],
    ids=["deep", "long", "binary", "another code page", "half a character"],
)
def test_what_cannot_be_judged_or_is_no_text_is_not_printed(redact, content, words):
    result = redact(content, "--check")

    assert_refused(result, words)
    assert "anna" not in result.stderr


SECRET = "Quiet-7q4x" + "Zk29"


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (f"I typed {SECRET}\npassword={SECRET}\n", ["line 1", "line 2"]),
        (f'{{"a": "{SECRET}"}}\n{{"password": "{SECRET}"}}\n', ["line 1: a", "line 2: password"]),
        (f'{{"a": "{SECRET}", "password": "{SECRET}"}}', ["a", "password"]),
        (
            f"I typed {SECRET}\n" + "a line\n" * 150_000 + f"password={SECRET}\n",
            ["line 1", "line 150002"],
        ),
        (
            f'{{"a": "{SECRET}"}}\n{{"cut\n'
            + '{"n": 1}\n' * 117_000
            + f'{{"password": "{SECRET}"}}',
            ["line 1", "line 117003"],
        ),
    ],
    ids=["text", "lines of JSON", "JSON", "a long text", "long lines of JSON, one broken"],
)
def test_a_secret_that_is_found_in_one_place_goes_in_all_and_is_reported_there(
    redact, text, places
):
    cleaned, report = redact(text, "--level", "private"), redact(text, "--report", "--json")

    assert SECRET not in cleaned.stdout
    assert [row["path"] for row in json.loads(report.stdout)] == places


def test_a_long_text_is_cleaned_in_parts(redact):
    written, expected = "{0:06} wrote to user{0}@example.org", "{0:06} wrote to [REDACTED:email]"

    result = redact("\n".join(map(written.format, range(30_000))))

    assert result.stdout.splitlines() == [*map(expected.format, range(30_000))]
    assert result.stderr == "long text: redacted in 3 chunks\n"


def test_what_lies_across_the_end_of_a_part_goes_whole(redact):
    begin, end = (f"-----{word} PRIVATE KEY-----" for word in ("BEGIN", "END"))
    key = "\n".join([begin, *["x7Qa" * 16] * 40, end])
    filler = "nothing\n" * 65_500

    result = redact(f"{filler}{key}\n{filler}")

    assert result.stdout == f"{filler}[REDACTED:private_key]\n{filler}"
    assert result.exit_code == 0
