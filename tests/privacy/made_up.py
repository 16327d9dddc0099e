"""Values that look real and are not, made when the tests run: no scanner finds them here."""

import base64
import random
import string

_random = random.Random(20260501)
_ALNUM = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"
_SMALL = string.ascii_lowercase + string.digits
_LARGE = string.ascii_uppercase + string.digits
_BASE_58 = "".join(sorted(set(_ALNUM) - set("0OIl")))


def characters(count: int, alphabet: str = _ALNUM) -> str:
    return "".join(_random.choices(alphabet, k=count))


def digits(count: int) -> str:
    return characters(count, string.digits)


def base64_of(count: int) -> str:
    return base64.b64encode(_random.randbytes(count)).decode()


def uuid() -> str:
    return "-".join(characters(size, _HEX) for size in (8, 4, 4, 4, 12))


PASSWORD = "-".join(("Quiet", digits(3), characters(4)))
TOKEN = "q7R" + characters(30)
HEX = characters(40, "0123456789abcdef")

_ARMOUR = "-----{} PRIVATE" + " KEY-----"
_SSH2 = "---- {} SSH2 ENCRYPTED PRIVATE" + " KEY ----"
BEGIN_KEY = _ARMOUR.format("BEGIN")

PREFIXED = {
    "aws": "AK" + "IA" + characters(16, string.ascii_uppercase + "234567"),
    "github": "gh" + "p_" + characters(36),
    "github fine-grained": "github" + "_pat_" + characters(22) + "_" + characters(59),
    "gitlab": "gl" + "pat-" + characters(20),
    "openai": "sk" + "-proj-" + characters(80),
    "anthropic": "sk" + "-ant-api03-" + characters(93),
    "google": "AI" + "za" + characters(35),
    "stripe": "sk" + "_live_" + characters(24),
    "slack": "xo" + "xb-" + digits(12) + "-" + characters(24),
    "hugging face": "h" + "f_" + characters(34),
    "npm": "np" + "m_" + characters(36),
    "sendgrid": "S" + "G." + characters(22) + "." + characters(43),
    "telegram": digits(9) + ":A" + "A" + characters(33),
    "vault": "hv" + "s." + characters(24),
    "unknown vendor": "acme" + "_live_" + characters(28),
    "this registry": "k" + "p_" + characters(32, "0123456789abcdef"),
    "jwt": "ey" + "J" + characters(20) + ".ey" + "J" + characters(40) + "." + characters(43),
    "private key": f"{BEGIN_KEY}\n{base64_of(48)}\n{_ARMOUR.format('END')}",
    "private key, cut off": f"{_ARMOUR.format('BEGIN RSA')}\n{base64_of(48)}",
    "webhook": "https://hooks.slack.com/services/T0/B0/" + characters(24),
    "hashed password": "$2b$12$" + characters(53),
    "slack cookie": "xo" + "xd-" + characters(60) + "%2B" + characters(20) + "%3D",
    "duffel": "duffel" + "_live_" + characters(18) + "_" + characters(10) + "-" + characters(13),
    "hubspot": "pa" + "t-na1-" + uuid(),
    "sonarqube": "sq" + "p_" + characters(40, _HEX),
    "dynatrace": "dt0" + "c01." + characters(24, _LARGE) + "." + characters(64, _LARGE),
    "netlify": "nf" + "p_" + characters(36),
    "pulumi": "pu" + "l-" + characters(40, _HEX),
    "neon": "nap" + "i_" + characters(64, _SMALL),
    "snyk": "snyk" + "_uat." + characters(8, _HEX) + ".ey" + "J" + characters(80) + "." + HEX,
    "launchdarkly": "sd" + "k-" + uuid(),
    "clickup": "p" + "k_" + digits(8) + "_" + characters(32, _LARGE),
    "plaid": "access" + "-production-" + uuid(),
    "adyen": "AQ" + "Eh" + characters(50) + "-" + characters(40) + "=-" + characters(14),
    "flutterwave": "FLW" + "SECK-" + characters(32, _HEX) + "-X",
    "new relic": characters(36, _HEX) + "NR" + "AL",
    "dropbox": "s" + "l.u." + characters(130),
    "mapbox": "s" + "k.ey" + "J" + characters(80) + "." + characters(22),
    "salesforce": "00" + "D" + characters(12) + "!AQ" + characters(90),
    "cloudflare": "cf" + "ut_" + characters(48),
    "cloudflare origin": "v1" + ".0-" + characters(24, _HEX) + "-" + characters(146, _HEX),
    "docker swarm": "SWM" + "TKN-1-" + characters(50, _SMALL) + "-" + characters(25, _SMALL),
    "k3s": "K1" + "0" + characters(64, _HEX) + "::server:" + characters(32, _HEX),
    "extended key": "xp" + "rv" + characters(107, _BASE_58),
    "prefect": "pn" + "u_" + characters(36),
    "typeform": "tf" + "p_" + characters(44) + "_" + characters(14),
    "frame.io": "fi" + "o-u-" + characters(64),
    "maxmind": characters(6) + "_" + characters(29) + "_m" + "mk",
    "yandex": "t" + "1." + characters(80) + "." + characters(86),
    "github installation": "v" + "1." + characters(40, _HEX),
    "azure devops": characters(76) + "AZ" + "DO" + characters(4),
    "adafruit": "ai" + "o_" + characters(28),
    "dependency track": "od" + "t_" + characters(32),
    "fly": "fo" + "1_" + characters(43),
    "trello": "AT" + "TA" + characters(72, _HEX),
    "brave": "BS" + "A" + characters(28),
    "marketplace": "amzn" + ".mws." + uuid(),
    "facebook app": digits(16) + "|" + characters(27),
    "sourcegraph": "sg" + "p_local_" + characters(40, _HEX),
    "stream": "liv" + "e_" + digits(9) + "_" + characters(30),
    "chat": "oau" + "th:" + characters(30, _SMALL),
    "mailgun webhook": characters(32, _HEX) + "-" + characters(8, _HEX) + "-" + characters(8, _HEX),
    "openshift": "sha" + "256~" + characters(43),
    "harness": "pa" + "t." + characters(22) + "." + characters(24) + "." + characters(20),
    "old vault": "s" + "." + characters(24),
    "onfido": "ap" + "i_live." + characters(11) + "." + characters(32),
    "old grafana": "eyJ" + "rIjoi" + characters(60),
    "asana": "1" + "/" + digits(16) + ":" + characters(32, _HEX),
    "telnyx": "KE" + "Y" + characters(32, "0123456789ABCDEF") + "_" + characters(22),
    "kerberos": "$krb5" + f"tgs$23$*bob$x.org$http*${characters(32, _HEX)}${characters(90, _HEX)}",
    "django": "pbkdf2" + "_sha256$600000$" + characters(22) + "$" + base64_of(32),
    "hook without a scheme": "hooks.slack" + ".com/services/T0/B0/" + characters(24),
    "teams": "https://outlook.office.com/web" + f"hook/{uuid()}@{uuid()}/Incoming/{HEX}",
    "ssh2 private key": f"{_SSH2.format('BEGIN')}\n{base64_of(48)}\n{_SSH2.format('END')}",
}

IN_PLACE = (
    ("password={}", PASSWORD),
    ('"dbPassword": "{}"', PASSWORD),
    (r"{{\"password\": \"{}\"}}", PASSWORD),
    ("{{'secret': '{}'}}", PASSWORD),
    ('password: str = "{}"', PASSWORD),
    ("DB_PASS={}", PASSWORD),
    ("pwd={};Database=x", PASSWORD),
    ("secret: >-\n  {}", PASSWORD),
    ("mot de passe : {}", PASSWORD),
    ("пароль: {}", PASSWORD),
    ("mysql -u root --password={} app", PASSWORD),
    ("tool --api-key {} run", TOKEN),
    ("sshpass -p {} ssh host", PASSWORD),
    ("curl -u bob:{} https://example.org", PASSWORD),
    ("machine example.org login bob password {}", PASSWORD),
    ("localhost:5432:app:bob:{}", PASSWORD),
    ("https://bob:{}@example.org/x", PASSWORD),
    ("https://{}@example.org/x", TOKEN),
    ("postgresql+asyncpg://bob:{}@db.internal/app", "ab$" + PASSWORD),
    ("The temporary password is {}.", PASSWORD),
    ("Log in with password {} today", PASSWORD),
    ("use {} as the password", PASSWORD),
    ("Authorization: Bearer {}", TOKEN),
    ("Authorization: token {}", HEX),
    ("Authorization: Basic {}", base64.b64encode(b"bob:" + PASSWORD.encode()).decode()),
    ("X-Api-Key: {}", HEX),
    ("Cookie: theme=dark; sid={}", TOKEN),
    ("GET /items?access_token={}&page=2", TOKEN),
    ("?sig={}&se=2026", TOKEN),
    ("VENDOR_THING = '{}'", TOKEN),
    ("requests.get(url, auth=('bob', '{}'))", PASSWORD),
    ("setHeader('X-API-Key', '{}')", PASSWORD),
    ("ALTER ROLE bob WITH PASSWORD '{}'", PASSWORD),
    ("requirepass {}", PASSWORD),
    ("pass={}", PASSWORD),
    ("<password>{}</password>", PASSWORD),
    ('<add key="Password" value="{}"/>', PASSWORD),
    ("- name: DB_PASSWORD\n  value: {}", PASSWORD),
    ("| password | {} |", PASSWORD),
    ("passphrase: {}", "correct horse battery staple"),
    ('Authorization: Digest username="bob", uri="/", response="{}"', HEX),
    ("AWS4-HMAC-SHA256 SignedHeaders=host, Signature={}", HEX),
    ("GET /?X-Amz-Signature={}", HEX),
    ("Your temporary password is: {}", PASSWORD),
    ("password -> {}", PASSWORD),
    ("Password (again): {}", PASSWORD),
    ("password%3D{}%26x%3D1", PASSWORD),
    ("api_key%253D{}", HEX),
    ("&quot;password&quot;:&quot;{}&quot;", PASSWORD),
    ("password＝{}", PASSWORD),
    ('setDbPassword("{}")', PASSWORD),
    ("jdbc:oracle:thin:scott/{}@//h:1521/x", PASSWORD),
    ("['curl', '-u', 'bob:{}']", PASSWORD),
    ("pass_word = {}", PASSWORD),
)

CARDS = {
    "visa": "4111 1111 1111 1111",
    "visa, hyphens": "4111-1111-1111-1111",
    "amex": "3782 822463 10005",
    "card after a cue": "card: 5018 0000 0009",
    "card in one, after a cue": "PAN 4111111111111111",
    "card code": "cvv: 123",
}

BARE_IDS = {
    "US": "123-45-6789",
    "GB": "943 476 5919",
    "FR": "1 85 05 78 006 084 91",
    "ES": "12345678Z",
    "DE": "86095742719",
    "IT": "RSSMRA85T10A562S",
    "SE": "811218-9876",
    "FI": "131052-308T",
    "CH": "756.9217.0769.85",
    "BE": "85.07.30-033.28",
    "BR": "529.982.247-25",
    "IN": "2341 2341 2346",
    "TW": "A123456789",
    "KR": "900101-1234567",
    "CN": "11010519491231002X",
    "SG": "S1234567D",
    "HK": "A123456(3)",
}
"""By the region in which they are at home."""

IDENTITIES = {
    "iban": "DE89 3704 0044 0532 0130 00",
    "iban in one": "GB29NWBK60161331926819",
    "us ssn": "SSN 123-45-6789",
    "uk nino": "National Insurance AB 12 34 56 C",
    "uk nhs": "NHS 943 476 5919",
    "fr nir": "NIR 1 85 05 78 006 084 91",
    "es dni": "DNI 12345678Z",
    "es nie": "NIE X1234567L",
    "de tax id": "IdNr 86095742719",
    "it codice fiscale": "codice fiscale RSSMRA85T10A562S",
    "nl bsn": "BSN 111222333",
    "pl pesel": "PESEL 44051401359",
    "se personnummer": "personnummer 811218-9876",
    "fi hetu": "hetu 131052-308T",
    "ch ahv": "AHV 756.9217.0769.85",
    "br cpf": "CPF 529.982.247-25",
    "in aadhaar": "Aadhaar 2341 2341 2346",
    "in pan": "PAN ABCPE1234F",
    "tw id": "身分證 A123456789",
    "kr rrn": "RRN 900101-1234567",
    "cn id": "身份证 11010519491231002X",
    "sg nric": "NRIC S1234567D",
    "passport": "passport no. X1234567",
    "any id": "ID number 8765432 B",
}

SENSITIVE = {**CARDS, **IDENTITIES}

CONTACT = {
    "email": "anna.o'neil+x@example.co.uk",
    "email, encoded": "anna%40example.org",
    "email, not ascii": "jürgen@müller.example",
    "phone, international": "+44 (0)20 7946 0958",
    "phone, 00": "0049 30 1234567",
    "phone, north america": "(555) 123-4567",
    "phone, germany": "030 12345678",
    "phone, france": "01 23 45 67 89",
    "phone, japan": "090-1234-5678",
    "phone, spain": "612 34 56 78",
    "phone after a cue": "tel: 5551234567",
    "phone in prose": "call me at 12 34 56 78",
    "ipv4": "203.0.113.9",
    "ipv4 with its network": "10.20.30.0/24",
    "ipv6": "2001:db8::8a2e:370:7334",
    "ipv6, mapped": "::ffff:192.168.1.5",
    "mac": "00:1b:44:11:3a:b7",
    "mac, dotted": "001b.4411.3ab7",
    "home, linux": "/home/anna/project/x.py",
    "home, macos": "/Users/anna/Desktop",
    "home, windows": "C:\\Users\\Anna Smith\\Documents\\x.txt",
    "home, escaped": "C:\\\\Users\\\\anna\\\\x",
    "home, git bash": "/c/Users/anna",
    "home, wsl": "\\\\wsl$\\Ubuntu\\home\\anna",
    "email, quoted": '"bob smith"@example.org',
}

ISSUED = {
    "hexadecimal": characters(32, _HEX),
    "a UUID": uuid(),
    "letters and digits": "Qz7" + characters(29),
    "small": "q7z4x8" + characters(34, _SMALL),
    "short": "Zq4x7Rb9" + characters(10),
}
"""What vendors issue without a form of their own."""

HARMLESS = (
    "SENTRY_RELEASE=" + characters(40, "0123456789abcdef"),
    "discord_channel_id: 123456789012345678, slack channel C024BE91L",
    "heroku: heroku-22, sentry: 24.1.0, stripe: stripe-node-v14.21.0-beta",
    "mirror: pypi-mirror-of-sdist-files-2024-11-28",
    "elastic_image = docker.elastic.co/elasticsearch/elasticsearch-8.12.2",
    "github_sha: " + characters(40, "0123456789abcdef"),
    "square: sizes-12x12-24x24-and-48x48",
    "kind: ConfigMap\ndata:\n  mode: production",
    "max_tokens=256, prompt_tokens: 512, the token limit is 8192",
    "password: str",
    "def login(user: str, password: str = '') -> bool:",
    'password = os.environ["DB_PASSWORD"]',
    "token = get_token(client)",
    "self.secret = secret",
    "if not password:\narXiv:2303.14327",
    "SELECT id FROM users WHERE token IS NULL",
    "UPDATE t SET password = :password",
    "api_key=${VAULT_KEY} token={{ github.token }} secret=$TOKEN",
    'password="<your password>" api_key="YOUR_API_KEY"',
    "password=******** sk-... Bearer <token>",
    "The password is required; the token is expired.",
    "getpass(prompt='Password: ', stream=None)",
    "--- PASS: TestFoo (0.01s)",
    "secretary: Anna; secret santa: December",
    "tool_call_id='call_Xy12Zab34Cdef56Ghi78Jkl90'",
    "model: sentence-transformers/all-MiniLM-L6-v2",
    '"integrity": "sha512-' + base64_of(64) + '"',
    "commit " + HEX + " sha256:" + HEX + "00112233445566778899aabb",
    "run 550e8400-e29b-41d4-a716-446655440000 at 2026-11-01T09:14:03.120Z",
    "ts=1763720000000 order 1234567812345678 PO 123456-12 ISBN 978-3-16-148410-0",
    "version 1.2.3.4, Chrome/115.0.0.0, v10.0.19041.1, driver=1.2.3.4",
    "http://127.0.0.1:8000 http://[::1]:8000 netmask 255.255.255.0",
    "git clone git@github.com:acme/tools.git",
    "lodash@4.17.21 icon@2x.png q@k.transpose(-2, -1) @app.route('/v1')",
    "GET /home/cart 200, https://shop.example.com/home/cart, /usr/local/lib/x.py",
    "std::vector<int> a::b::c abc::def 12:34:56",
    "lines 120-340, 1,234,567 tokens, 1 000 000, 3.141592653589793, [0.123456, -1.234567]",
    "the task-force-report-of-the-year, scikit-learn-contrib, risk-adjusted-returns",
    "basic authentication, bearer of bad news, docker run -p 8080:80 mysql",
    "s3://bucket/key=abc/part-00000-1234.parquet",
    "sandbox-2024112107422956812345",
    "12 345 67 89 rows",
    r"split on \n or \t, match \d{3}-\d{2}, C:\new\table\users.csv",
    "100%25 of https://example.org/a%20b?c=%2Fx&amp;d=1 &quot;quoted&quot;",
    "\x1b[32mPASSED\x1b[0m tests/test_x.py::test_a[1-2] \x1b[1m12 passed\x1b[0m",
    "def f(token) -> str: return ctx->token->value",
    "token (str): Access for the API",
    "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
)


def remains(value: str, text: str) -> str:
    """The longest half of a value that is still in a text, or nothing."""
    half = len(value) // 2
    parts = (value, value[:half], value[half:]) if half > 3 else (value,)
    return next((part for part in parts if part in text), "")


def digits_left(text: str) -> str:
    return "".join(filter(str.isdigit, text))


def shape(value: object) -> object:
    """Return what redaction must keep of a JSON value: its dicts and lists, with their lengths."""
    if isinstance(value, dict):
        return {"members": [shape(member) for member in value.values()]}
    if isinstance(value, list | tuple):
        return [shape(item) for item in value]
    return "leaf"
