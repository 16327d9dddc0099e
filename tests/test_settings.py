"""Sources of settings, and errors for invalid ones."""

import re
import traceback
from inspect import getdoc
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from pydantic import SecretStr, ValidationError

from kp_middleware import KnowledgePulse, Settings
from kp_middleware.core.formula import Weights


@pytest.fixture
def write(home):
    """Writes a file below the user's folder of configurations."""

    def to(name, content):
        file = home / ".config" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    return to


DEFAULTS = {
    "domain": "general",
    "threshold": 0.75,
    "visibility": "network",
    "privacy_level": "aggregated",
    "api_key": None,
    "agent_id": None,
    "cache_size": 1000,
    "cache_ttl_ms": None,
    "enabled": True,
    "sync": False,
    "profiles": {},
}


def test_nothing_has_to_be_set(home):
    settings = Settings()

    assert settings.model_dump(include={*DEFAULTS}) == DEFAULTS
    assert settings.db == home / "d" / "kp-middleware" / "kp.db"


def test_the_nearest_source_wins(write, monkeypatch):
    write("knowledgepulse/config.json", b'{"defaultDomain": "reference"}')
    assert Settings().domain == "reference"

    write("kp-middleware/settings.toml", b'domain = "file"')
    assert Settings().domain == "file"

    monkeypatch.setenv("KP_DOMAIN", "environment")
    assert Settings().domain == "environment"
    assert Settings(domain="keyword").domain == "keyword"


def test_one_login_serves_the_reference_command_line_and_us(write):
    write(
        "knowledgepulse/config.json",
        b'{"registryUrl": "https://registry.example", "defaultVisibility": "org",'
        b' "defaultDomain": "code"}',
    )
    write("knowledgepulse/auth.json", b'{"apiKey": "kp_1", "agentId": "agent-1", "tier": 3}')

    settings = Settings()

    assert settings.api_key.get_secret_value() == "kp_1"
    assert (settings.agent_id, settings.registry_url) == ("agent-1", "https://registry.example")
    assert (settings.visibility, settings.domain) == ("org", "code")


@pytest.mark.parametrize("content", [b"{", b"\xff", b"\x00"], ids=["cut", "no UTF-8", "a zero"])
def test_a_file_of_the_reference_that_is_no_json_is_a_problem(write, content):
    write("knowledgepulse/auth.json", content)

    settings = Settings()

    assert settings.api_key is None
    (problem,) = map(str, settings.problems)
    assert "auth.json: it " in problem
    assert problem.endswith("or log in again")


@pytest.mark.parametrize(
    "content",
    [b"[]", b"null", b'{"apiKey": null}', b'{"apiKey": 5}', b'{"apiKey": ""}'],
    ids=["a list", "null", "no key", "a number", "an empty key"],
)
def test_a_login_without_a_key_is_no_key(write, content):
    write("knowledgepulse/auth.json", content)

    assert Settings().api_key is None


def test_an_empty_key_is_no_key_and_any_other_is_not_shown():
    settings = Settings(api_key="kp_secret")

    assert "kp_secret" not in f"{settings!r} {settings.model_dump_json()}"
    assert Settings(api_key="").api_key is Settings(api_key=SecretStr("")).api_key is None


def test_every_setting_is_a_variable(monkeypatch):
    monkeypatch.setenv("KP_THRESHOLD", "0.6")
    monkeypatch.setenv("KP_ENABLED", "false")
    monkeypatch.setenv("KP_CACHE_TTL_MS", "60000")
    monkeypatch.setenv("KP_DB", "/srv/kp.db")
    monkeypatch.setenv(
        "KP_PROFILES",
        '{"law": {"complexity": 0.1, "novelty": 0.2, "tool_diversity": 0.3, '
        '"outcome_confidence": 0.4}}',
    )

    settings = Settings()

    assert (settings.threshold, settings.enabled, settings.cache_ttl_ms) == (0.6, False, 60_000)
    assert settings.db == Path("/srv/kp.db")
    assert settings.profiles["law"].outcome_confidence == 0.4


@pytest.mark.parametrize(
    ("words", "kept"),
    [("0.6", 0.6), ("1e-1", 0.1), ("top 10%", "top 10%"), (" Top  2.50 percent ", "top 2.5%")],
)
def test_a_threshold_is_a_number_or_a_share(words, kept, monkeypatch):
    monkeypatch.setenv("KP_THRESHOLD", words)

    assert Settings().threshold == kept


def test_an_empty_variable_is_as_if_it_were_not_set(monkeypatch):
    monkeypatch.setenv("KP_THRESHOLD", "")
    monkeypatch.setenv("KP_API_KEY", "")

    assert (Settings().threshold, Settings().api_key) == (0.75, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threshold", 1.5),
        ("threshold", "nan"),
        pytest.param("threshold", 10**400, id="threshold-too large"),
        ("threshold", "high"),
        ("threshold", True),
        ("threshold", "top 0.5%"),
        ("threshold", "top 101%"),
        ("max_per_day", -1),
        ("visibility", "public"),
        ("privacy_level", "none"),
        ("domain", ""),
        ("agent_id", ""),
        ("cache_size", -1),
        ("cache_ttl_ms", -1),
        ("max_steps", 1),
        ("max_field_bytes", 1023),
        ("max_field_bytes", 1_000_001),
        ("max_trace_bytes", 4095),
        ("max_queue_bytes", -1),
        ("enabled", "perhaps"),
        ("profiles", {"law": {"complexity": 1}}),
        ("redact_allow", [""]),
        ("redact_deny", ["x" * 1001]),
        ("redact_keys_deny", 5),
        ("redact_phone_regions", ["Germany"]),
        ("redact_engines", ["trufflehog"]),
        ("redact_engines", ["gitleaks"]),
        ("redact_numbered", "perhaps"),
    ],
)
def test_a_wrong_setting_is_named(name, value):
    with pytest.raises(ValidationError, match=rf"Settings\n{name}"):
        Settings(**{name: value})


@pytest.mark.parametrize("pattern", ["/(/", "/a**/", "/(?=a)/", r"/\1/"])
def test_a_pattern_that_is_none_is_named_with_what_is_wrong(pattern):
    pytest.importorskip("re2", reason="the extra patterns is not installed")

    with pytest.raises(ValidationError, match="not a valid RE2 pattern") as raised:
        Settings(redact_deny=["fine", pattern])

    assert raised.value.errors()[0]["loc"] == ("redact_deny", 1)


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("Bluebird", ("Bluebird",)),
        ("Bluebird, red kite ,", ("Bluebird", "red kite")),
        ('["a, b", "/a{1,2}/"]', ("a, b", "/a{1,2}/")),
        ("/ACME-[0-9]+/", ("/ACME-[0-9]+/",)),
        ("[]", ()),
    ],
    ids=["one", "several", "JSON", "a pattern", "none"],
)
def test_a_list_is_written_as_json_or_with_commas(monkeypatch, variable, expected):
    monkeypatch.setenv("KP_REDACT_DENY", variable)

    assert Settings().redact_deny == expected


@pytest.mark.parametrize("variable", ["/a/,b", "/a{1,2}/", "b, /a/", '["a"', "[1]"])
def test_a_list_that_could_mean_two_things_is_a_wrong_setting(monkeypatch, variable):
    monkeypatch.setenv("KP_REDACT_DENY", variable)

    assert [problem.name for problem in Settings(api_key="kp_1").problems] == ["redact_deny"]
    assert Settings(api_key="kp_1").api_key is None


FILE = b"""
domain = "code"
colour = "red"
redact_deny = ["Bluebird"]
redact_engines = ["gitleaks:~/rules.toml"]
redact_phone_regions = ["DE", "CH"]
redact_numbered = true
[profiles.law]
complexity = 0.1
novelty = 0.2
tool_diversity = 0.3
outcome_confidence = 0.4
"""


def test_the_file_sets_what_is_known_and_leaves_the_rest_to_other_versions(write):
    write("kp-middleware/settings.toml", FILE)

    settings = Settings()

    assert settings.domain == "code"
    assert (settings.redact_deny, settings.redact_numbered) == (("Bluebird",), True)
    assert settings.redact_engines == ("gitleaks:~/rules.toml",)
    assert settings.redact_phone_regions == ("DE", "CH")
    assert settings.profiles == {
        "law": Weights(complexity=0.1, novelty=0.2, tool_diversity=0.3, outcome_confidence=0.4)
    }


@pytest.mark.parametrize("content", [b"threshold = ", b"\xff\xfe\x00"], ids=["no TOML", "no UTF-8"])
def test_a_settings_file_that_cannot_be_read_is_named_with_what_to_do(write, home, content):
    write("kp-middleware/settings.toml", content)
    file = home / ".config" / "kp-middleware" / "settings.toml"

    (problem,) = map(str, Settings().problems)
    assert problem.startswith(str(file))
    assert "correct the file or remove it" in problem


def test_settings_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        Settings().threshold = 0.1


def test_each_setting_is_a_keyword_and_is_described():
    described = re.findall(r"^ {4}(\w+): ", getdoc(Settings) or "", re.MULTILINE)

    assert list(Settings.model_fields) == described[: len(Settings.model_fields)]
    (keywords,) = get_args(get_type_hints(Settings.__init__)["keywords"])
    assert {*Settings.model_fields} == {*keywords.__annotations__}


KEY = "kp_" + "7" * 32
WRONG = {
    "a name with a slip": ({"apikey": KEY}, "apikey\n  unknown setting"),
    "a list": ({"api_key": [KEY]}, "api_key\n  Input should be a valid string"),
    "bytes in a list": ({"api_key": (KEY.encode(),)}, "api_key\n  Input should be a valid string"),
    "in place of another": ({"threshold": KEY}, "threshold\n  must be a number from 0"),
    "among others": ({"domain": [{"x": KEY}]}, "domain\n  Input should be a valid string"),
}


@pytest.mark.parametrize("make", [KnowledgePulse, Settings])
@pytest.mark.parametrize(("given", "words"), WRONG.values(), ids=WRONG.keys())
def test_a_key_in_the_wrong_place_is_not_quoted(make, given, words):
    with pytest.raises(ValidationError) as raised:
        make(**given)

    told = "".join(traceback.format_exception(raised.value)) + repr(raised.value)
    assert words in told
    assert KEY not in told


def test_a_key_in_a_variable_of_another_name_is_not_quoted(monkeypatch):
    monkeypatch.setenv("KP_PROFILES", KEY)

    (problem,) = map(str, Settings().problems)

    assert problem.startswith("profiles: ")
    assert KEY not in problem
