"""A password goes in every notation that names it, whatever signs it is made of."""

import json
import random
import string
from base64 import b64encode

import pytest

from kp_middleware.privacy import redact_jsonable, redact_text

BASE62 = string.ascii_letters + string.digits
SYMBOLS = BASE62 + "!@#$%^&*()-_=+[]{};:,.?/<>|~"
TRIES = 100

ALPHABETS = {
    "letters and digits": lambda rng: signs(rng, BASE62, 16),
    "few letters and digits": lambda rng: signs(rng, BASE62, 10),
    "symbols": lambda rng: signs(rng, SYMBOLS, 16),
    "base64": lambda rng: b64encode(rng.randbytes(18)).decode(),
    "hex": lambda rng: signs(rng, "0123456789abcdef", 32),
}
FORMS = {
    "a line of .env": "DB_PASSWORD={}\nNEXT=1",
    "an export": "export DB_PASSWORD='{}'\nmake deploy",
    "yaml": "password: {}\nuser: a",
    "quoted yaml": 'password: "{}"\nuser: a',
    "toml": '[db]\npassword = "{}"\n',
    "python": "password = '{}'\n",
    "a keyword of a call": 'connect(host="h", password="{}", port=1)',
    "a value quoted before": 'mysql --user="root" --password="{}"',
    "a variable quoted before": 'DB_USER="bob" DB_PASSWORD="{}" ./run.sh',
    "docker's -e": 'docker run -e A="b" -e PASSWORD="{}" img',
    "logfmt": 'level="info" api_key="{}" status="ok"',
    "an attribute": '<user username="tomcat" password="{}"/>',
    "prose": "The password is {} and it works.",
    "a flag": "tool --password {} --v",
    "a bearer": "Authorization: Bearer {}",
    "a log line": "2025-01-01 INFO login user=bob password={} status=ok",
    "a comparison": 'if password == "{}":',
    "a call that logs in": 'client.login("bob", "{}")',
    "a default": '${{DB_PASSWORD:-"{}"}}',
    "a fallback": 'os.environ.get("DB_PASSWORD") or "{}"',
    "terraform": 'variable "db_password" {{\n  default = "{}"\n}}',
    "a word for it in German": "Das Passwort lautet: {}\n",
    "a word for it in Chinese": "密码：{}\n",
}
UNQUOTED = {name for name, form in FORMS.items() if "'{}'" not in form and '"{}"' not in form}


def signs(rng, alphabet, length):
    return "".join(rng.choice(alphabet) for _ in range(length))


def is_well_formed(form, password):
    """Whether a shell, a parser or a reader would take all of it for the value."""
    if form not in UNQUOTED:
        return True
    return password[0] not in "#&*!|>%@-[{?,<(" and password[-1] not in ".,;:!?)]}>"


def left_half(password, text):
    """Whether half of it or more is still there."""
    half = len(password) // 2 + 1
    return password[:half] in text or password[-half:] in text


@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.parametrize("form", FORMS)
def test_a_password_goes_in_every_form_whatever_its_signs(form, alphabet):
    rng = random.Random(f"{form} {alphabet}")  # the same each time
    made = (ALPHABETS[alphabet](rng) for _ in range(TRIES))
    passwords = [password for password in made if is_well_formed(form, password)]

    left = [
        password
        for password in passwords
        if left_half(password, redact_text(FORMS[form].format(password), level="private").text)
    ]

    assert len(left) <= 0.02 * len(passwords), left


@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_password_goes_in_json_in_json(alphabet, depth):
    rng = random.Random(f"{depth} {alphabet}")
    password = ALPHABETS[alphabet](rng)
    text = json.dumps({"user": "a", "password": password})
    for _ in range(depth - 1):
        text = json.dumps({"payload": text})

    redacted = redact_text(f"INFO got {text}", level="private").text

    assert not left_half(password, redacted)


@pytest.mark.parametrize(
    "name",
    ["OPENAI_KEY", "API_KEY_OPENAI", "PASSWORD_FOR_DB", "TOKEN_CI", "dbpass", "PGPASS", "rootpw"],
)
def test_a_name_that_names_a_secret_in_any_order_is_known_as_a_key_and_in_a_text(name):
    value = signs(random.Random(name), BASE62, 12)

    as_key = redact_jsonable({name: value}, level="private").value
    as_text = redact_text(f"{name}={value}\n", level="private").text

    assert value not in json.dumps(as_key)
    assert value not in as_text


@pytest.mark.parametrize(
    "harmless",
    [
        '{"next_page_token": "CAUQAA=="}',
        '{"nextToken": "eyJvZmZzZXQiOjEwfQ"}',
        '{"token": "Yes", "logprob": -0.0031}',
        '{"state": "ready", "cache_key": "user:42:profile"}',
        "def connect(api_key: MyKeyType, token: str | None = None) -> Client: ...",
        "api_key: API key for the weather service.",
        "The token was counted, and the password field is required.",
        "Press any key to continue; the secret of good bread is time.",
    ],
)
def test_what_only_sounds_like_a_secret_stays(harmless):
    assert redact_text(harmless, level="private").text == harmless
