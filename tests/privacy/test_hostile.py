"""No text is slow, and structures cost in proportion to their size, whatever is in them."""

import re
import time

import made_up
import pytest

from kp_middleware.privacy import redact_jsonable, redact_text

TELLING = ("name", "key", "header", "field", "label", "element", "selector", "id")
MADE = {
    "keys that are addresses": lambda n: {f"user{i}@example.org": i for i in range(n)},
    "keys that become the same": lambda n: {f"10.1.{i // 250}.{i % 250}": 1 for i in range(n)},
    "short texts": lambda n: [f"see you {i}" for i in range(n)],
    "numbers of eight digits": lambda n: [10_000_000 + 7 * i for i in range(n)],
    "all keys that tell": lambda n: [
        {key: f"a {key} {i}" for key in TELLING} | {"value": "x"} for i in range(n // 10)
    ],
    "flags": lambda n: ["--token", "x y"] * (n // 2),
    "keys that name secrets": lambda n: [{"password": {"a": "b"}}] * (n // 2),
    "JSON in texts": lambda n: ['{"a": ["b"]}'] * (n // 2),
    "JSON in texts after a word": lambda n: ['x {"password": ["b"]}'] * (n // 4),
    "secrets, and a text of what is like them": lambda n: [
        *({"password": f"{i}k" + "ab" * 20 + "!"} for i in range(min(n, 1000))),
        "ab" * 20 * n,
    ],
    "one long text of JSON": lambda n: "x " + '{"token": [' * n,
}


def cpu_s(call, *args, **options):
    began = time.process_time()
    call(*args, **options)
    return time.process_time() - began


def is_linear(half, whole):
    """Return whether both took about as long for each of their parts."""
    half_s, whole_s = (cpu_s(redact_jsonable, made, level="aggregated") for made in (half, whole))
    return whole_s < min(2, 3.2 * half_s + 0.02)


@pytest.mark.parametrize("make", MADE.values(), ids=MADE.keys())
def test_twice_as_much_takes_about_twice_as_long(make):
    redact_jsonable(make(20), level="aggregated")

    half, whole = make(1500), make(3000)

    assert any(is_linear(half, whole) for _ in range(3))


SIZE = 65_536
UNITS = (
    *("a", "1", " ", "a ", "1 ", "a.", "1.", "a@", "a@b.", "::", "a:", "/home/", "é", "\u200b"),
    *("password=", 'token: "', '\\"', '"password":"', "://", "https://a:b", "postgres://", "a_"),
    *("ab-", "sk-a-", "eyJ", "eyJa.", made_up.BEGIN_KEY, "Bearer ", "basic ", "+1 "),
    *("0 ", "(0", "AB12 ", "DE89 3704 ", "| ", "key=", "<password>", "authorization: ", "\\"),
    *("cookie: a=", "C:\\Users\\", "login a ", "sshpass -p ", "-u a", "[REDACTED:", "[", '{"a":'),
    *("card card ", "call me ", "$2a$", "name: password ", "x as the ", "1.1.1.1 ", "fe80::1 "),
    *(
        "\uff0c",
        "\uff11",
        "\ufe0f",
        "e\u0301",
        '"token":[',
        "'pwd': {",
        '"secret":{"a":',
        "[1,",
        '\\"a\\":[',
    ),
    *('["-p", ', '("-a",a,', '"-a"', "password" + " " * 90),
    *("4111 ", "aa:bb:", "secret_secret_", "x=aB3", "password is ", "'a','b',", "%40", "A1"),
    *(
        "psk=1 ",
        "passphrase: aa ",
        "-u a:bb ",
        "-u :bb ",
        "-u a:",
        "a@b.co ",
        "fe80::1%",
        "pwd x1y2 ",
    ),
    *(
        "+49 30 12345678",
        "1 2345",
        "%20",
        r"\n",
        "&amp;",
        "\x1b[0m",
        r"\npassword=a1 ",
        "%41",
        "\\\\n",
    ),
    *(
        "mailgun key ",
        "plaid=a1B2c3D4e5F6g7 ",
        "ssn 123-45-6789 ",
        "data:\n a: b\n",
        "AKIA" + "A" * 16,
    ),
    *("cGFzc3dvcmQ9aHVu ", "cGFzc3dvcmQ9aHVudGVyMjI= ", "a" * 76 + "\n", "aA1" * 20 + "/"),
    *("set-cookie: a=b; ", "secret data: \n \n", 'password = """', 'pwd="a" ', "token is `"),
    *("pwd:a1 ", "api_key='\\", "token|'", 'auth":{', "- a1b2c3d4e5\n", "tokens:\n- a1b2c3\n"),
    *("login: a / ", "smbclient -U a%", "sqlplus a/", "WIFI:S:P:", "key 5 ", ".fill("),
    *('set("', 'setPassword("', "response=digest", '"a"@', "ssh://a", "token -> ", "K10", "00D"),
    *("sshpass:a@", "bedrock-api-key-1", "$cryptsetup<<<sendinblue", "\uc554\ud638", "auth_"),
    *("api key is `", "pw=a,", "storepass://_", "setcookie=a,", "expect(token).to", "pin is "),
    *("password=" + "ab-" * 700, "password=" + "a_" * 700, "password is " + "aB3" * 700),
    *("pass is " + "aB3xZ9qW" * 9000, "up_", "@a.aa:aB3", "recovery codes: 1234 1234 "),
)


PROSE = "The agent looked at the list of flights, and asked for the cheapest one on Friday. "
SEARCH = re.compile(r"(?:[a-z]+ ){3}(?=[A-Z])|\w+(?=:)")
MOST = 46  # times what this search takes in prose of the same size: 7 ms where nothing else runs
CUT = "… [cut: 90000 characters in all]"


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", CUT], ids=["whole", "cut"])
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: ascii(unit)[:24])
def test_no_text_makes_it_slow(unit, end):
    text = (unit * SIZE)[: SIZE - len(end)] + end
    prose = (PROSE * SIZE)[:SIZE]

    # side by side: a busy machine slows both down; and no text that was seen before
    assert any(
        cpu_s(redact_text, text[turn:], level="aggregated") < MOST * cpu_s(SEARCH.findall, prose)
        for turn in range(5)
    )
