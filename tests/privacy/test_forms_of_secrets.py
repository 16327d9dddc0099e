"""A secret beside its name goes in every notation, and what only stands like one stays."""

import forms
import made_up
import pytest

from kp_middleware.privacy import redact_jsonable, redact_text

TRIES = 50
PLAIN = (*forms.ASSIGNMENTS, *forms.CALLS, *forms.COMMANDS, *forms.BUILT, *forms.COMPARED)
TOLD = ((")]};,.:?!>", form) for form in forms.TOLD)  # what ends a sentence
ALL = (*(("", form) for form in PLAIN), *TOLD, *forms.RESTRICTED)
TWELVE = "q7Rm2xWz9LkT"
BLANK = "[REDACTED:password]"
ANNOUNCED = "wJ4" + made_up.characters(35) + "/+"
BETWEEN = ("\n", ", ", '", "', "\nexport X=")
LOG = "2025-01-01 INFO login user=bob password={} status=ok"
LOGINS = (
    *("mysql -uroot -p{} app", "sshpass -p {} ssh bob@h", "docker login -u bob -p {} reg.io"),
    *("redis-cli -a {} ping", "sqlcmd -U sa -P {}", "ldapsearch -x -w {}", "sqlplus scott/{}@orcl"),
)
SIGNS = ("NCwa[c&QJ,r+g*Mx", "!qP0TS8<ibX55MjH", "*IN-QQ)*3Aq;}zW1")


@pytest.mark.parametrize(("without", "form"), ALL, ids=[ascii(form)[1:60] for _, form in ALL])
@pytest.mark.parametrize("alphabet", forms.ALPHABETS)
def test_hardly_any_random_password_is_left(alphabet, without, form):
    values = forms.passwords(alphabet, TRIES, without)

    texts = [redact_text(form.format(value)).text for value in values]

    left = list(zip(values, texts, strict=True))
    assert sum(value in text for value, text in left) <= 0.02 * TRIES
    assert sum(leaves_half(value, text) for value, text in left) <= 0.04 * TRIES


def leaves_half(value, text):
    return value[: len(value) // 2 + 1] in text or value[len(value) // 2 - 1 :] in text


@pytest.mark.parametrize("form", ["{}={}", '{}: "{}"', '{{"{}": "{}"}}', "export {}='{}'"])
def test_names_that_say_whose_secret_it_is_give_it_away(form):
    texts = {name: redact_text(form.format(name, TWELVE)).text for name in forms.NAMES}

    assert [name for name, text in texts.items() if TWELVE in text] == []


def test_such_names_give_it_away_as_keys():
    redacted = redact_jsonable(dict.fromkeys(forms.NAMES, TWELVE), level="private")

    assert redacted.value == dict.fromkeys(forms.NAMES, BLANK)


@pytest.mark.parametrize(
    ("form", "secret"),
    [
        ("the password is {}", "correct-horse-battery-staple"),
        ("password: {}", "%vbmjytum"),
        ("SIGNING_KEY={}", "7C2A" * 8),
        ("session_token={}", "daxejqqbupbgxgromgyt"),
        ('login(password="{}")', "sunshine"),
        ("Authorization: Bearer {}", "correct-horse-battery-staple"),
        ("The default password is '{}'", "blueberry"),
        ("BUNDLE_GEMS__EXAMPLE__COM={}", "deadbeef:cafebabe"),
        ("https://x.webhook.office.com/webhookb2/{}", made_up.characters(40)),
        ("hooks.slack.com/services/T0/B0/{}", made_up.characters(24)),
        (f'Client("AC{made_up.characters(32, "0123456789abcdef")}", "{{}}")', made_up.HEX[:32]),
        ("kind: Secret\ndata:\n  extra: {}\n", "cXVpZXQgcGFzcyBwaHJhc2U="),
        ("chpasswd <<EOF\nbob:{}\nEOF", made_up.PASSWORD),
        ("setx DB_PASSWORD {}", made_up.PASSWORD),
        ("password: |\n  {}\nuser: bob", "hunter2"),
        ("aws ssm put-parameter --name /x --value {} --type SecureString", "hunter2"),
        ('gh secret set NAME --body "{}"', "hunter2"),
        ('~ master_password = "old" -> "{}"', "hunter2"),
        ("the admin password has been changed to {}", "hunter2"),
        ("Le mot de passe pour le serveur est {}", "hunter2"),
        ("La contraseña del servidor es {}", "hunter2"),
        *((f"{place} {{}}", "4815") for place in ("2FA code:", "Die TAN lautet", "认证 验证码：")),
        *((form, weak) for form in LOGINS for weak in ("Pass" + "word123", "my-secret" + "-pw")),
        *((form, made_up.TOKEN) for form in forms.OF_TOKENS),
        *((form, made_up.HEX[:32]) for form in forms.OF_HEXADECIMAL),
        *((form, "abcd efgh ijkl mnop") for form in ("x --password {} -v", "SMTP_PASS={}\nA=1")),
        ('The passphrase for the key is "{}".', "maple coffee falcon pepper"),
        ("Unseal Key 2: {}", made_up.base64_of(33)),
        *((f"{made_up.PREFIXED['aws']}{between}{{}}", ANNOUNCED) for between in BETWEEN),
        *((f"{word}: {{}}\nok", TWELVE) for word in forms.LANGUAGES),
        *((form, TWELVE) for form in forms.PLACES),
        ('"vendor" => "{}"', made_up.TOKEN),
        ("const token = `{}`", made_up.TOKEN),
    ],
)
def test_a_secret_goes_because_of_what_stands_beside_it(form, secret):
    assert made_up.remains(secret, redact_text(form.format(secret)).text) == ""


@pytest.mark.parametrize("end", ["PRIVATE" + " KEY-----", "RSA PRIVATE" + " KEY-----"])
def test_the_second_half_of_a_private_key_goes(end):
    lines = [made_up.base64_of(48) for _ in range(4)]

    text = redact_text("\n".join([*lines, f"-----END {end}", "next"])).text

    assert text == "[REDACTED:private_key]\nnext"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(password=abc123)", f"(password={BLANK})"),
        ("password=abc123, user=bob", f"password={BLANK}, user=bob"),
        ("{password: abc123, user: bob}", f"{{password: {BLANK}, user: bob}}"),
        ("Password=abc123;Database=x", f"Password={BLANK};Database=x"),
        ("GET /x?token=abc123&page=2", f"GET /x?token={BLANK}&page=2"),
        (f"GET /x?token={made_up.TOKEN}&page=2", f"GET /x?token={BLANK}&page=2"),
        ("password=abc,12(3 user=bob", f"password={BLANK} user=bob"),
        *((LOG.format(secret), LOG.format(BLANK)) for secret in SIGNS),
        ('{"cmd": "run password=abc123", "n": 1}', f'{{"cmd": "run password={BLANK}", "n": 1}}'),
    ],
)
def test_what_stands_around_a_bare_value_still_reads(text, expected):
    assert redact_text(text).text == expected


@pytest.mark.parametrize(
    "value",
    [
        *(
            {name: TWELVE * 2}
            for name in ("next_page_token", "nextToken", "pageToken", "cache_key")
        ),
        *({name: TWELVE * 2} for name in ("state", "public_key", "NextContinuationToken")),
        *(f"log: {{'{name}': '{TWELVE}'}}" for name in ("page_token", "sync_token")),
        {"token": "Yes"},
        {"token": " international", "logprob": -0.31, "bytes": [32]},
        "TopLogprob(token='Paris', bytes=[80], logprob=-0.31)",
        "def connect(host: str, api_key: MyKeyType) -> None:",
        "    api_key: MyKeyType\n    password: SecretStr | None = None",
        "Args:\n    api_key: API key for the service.\n    password: Password of the user.",
        "creds = base64.b64encode(user_pass.encode(",
        'input("Password: ", stream=None)',
        "| token | meaning |\n|---|---|\n| NAME | a name |",
        'class Credentials:\n    """What was given."""\n',
        "hashlib.scrypt(b'password', salt=b'salt', n=2)",
        "connect(password=password,host=host)",
        "host key: ssh-ed25519 " + made_up.base64_of(32),
        "password=${DB_PASSWORD} api_key=$(cat key) secret={{ vault.secret }}",
        "git log --author-key=a, sort_key='-created'",
        'export PGPASS="$PGPASS"',
        *('fetch(u, {credentials: "include"})', "credentials: 'same-origin'"),
        *("Set-Cookie: Path=/; HttpOnly", '{"password": "string"}', 'log {"password": "string"}'),
        *({"password": "string"}, {"credentials": "include"}, {"cookie": "Path=/; HttpOnly"}),
        "password: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  623133",
        *("| user | password |\n|---|---|\n", "| user | password |\n+------+----------+\n"),
        *("git show -p 3f2a9c1d4e5b6a7f8091a2b3c4d5e6f708192a3b", "token.match('[a-z]+')"),
        *("expect(password).toBeDefined()", "DB_PASSWORD=$(cat it)", "mkdir -p some/folder2"),
        "Authorization: required for all endpoints",
        "Authorization: see the docs for details.",
        *("Пароль неверный", "пароль: обязательное поле", "Das Passwort ist falsch"),
        *("Le mot de passe est incorrect", "密码不正确，请重试", "비밀번호가 틀렸습니다"),
        "fn login(password: &SecretString, token: &str) -> Result<()>",
        *('{"token":12}', {"token": 12}, {"passwords": 3}),
        {"credentials": {"user": "bob", "region": "eu"}},
        'got {"credentials":{"user":"bob","region":"eu"}} there',
        'for name in "username", "password", "database":',
        "The secret version's data; a token shouldn't be there.",
        "authorization|x-api-key|x-auth-token",
        *('{"nextToken": "eyJvZmZzZXQiOjEwfQ"}', '{"cache_key": "user:42:profile:ab12cd"}'),
        "def connect(api_key: MyKeyType, token: str | None = None) -> Client: ...",
        "The token was counted, and the password field is required.",
        "Press any key to continue; the secret of good bread is time.",
        *("DB_PASSWORD=[redacted]", "DB_PASSWORD=(none)", "DB_PASSWORD=<unset>", "API_TOKEN=n/a"),
        *("DB_PASSWORD=(not set)", '{"password": "[Filtered]"}', {"password": "<unset>"}),
        *({"password": kind} for kind in ("uuid", "email", "date-time", "int64", "str | None")),
        *('{"password": "uuid"}', '{"token": "varchar(255)"}', '{"password": ["required"]}'),
        *("'password' => ['required', 'string', 'min:8'],", "password: ['', Validators.required],"),
        {"password": ["This field is required."]},
        *("password              = var.db_password", "token                 : string"),
        *(form.format(word) for form in LOGINS for word in ("password", "your_password", "<pwd>")),
        *('var tokenType string = "bearer"', 'var password string = os.Getenv("DB_PASSWORD")'),
        *(["ssh", "-p", "2222"], ["mkdir", "-p", "some/folder"], ["redis-cli", "-h", "cache"]),
        *('subprocess.run(["mkdir", "-p", "some/folder2"])', '["git", "log", "-p", "HEAD~2"]'),
        *('parser.add_argument("-p", "--password", help="x")', '["mysql", f"-p{password}"]'),
        "secrets:\n  db_password:\n    file: ./db_password2.txt\n  other:\n    external: true\n",
        "secret:\n  secretName: db-creds-2024\n[secrets]\na = 1\n[other]\nid = 'q7Rm2xWz9LkT'\n",
        "credentials:\n  user: bob\n  region: eu-central-1\nbuild: q7Rm2xWz9LkT\n",
        {"kind": "ConfigMap", "data": {"main": TWELVE}},
        *("the password has been changed", "The password was changed to match the policy"),
        *("Das Passwort für den Server ist abgelaufen", "La contraseña del servidor es incorrecta"),
        *(
            "status code: 4815",
            "4815 is your order number",
            "2FA code length: 6 digits",
            "TAN 2024",
        ),
        *(
            "Nutze nichts davon als Passwort",
            "use argon2 as password hash",
            "验证码错误",
            "user bob passes",
        ),
        {"outputs": {"x": {"value": TWELVE, "sensitive": False}}},
        "aws ssm put-parameter --name /x --value blue1 --type String",
        f"kubectl create configmap x --from-literal=key1={TWELVE}",
        *(
            "250-AUTH PLAIN LOGIN\n",
            "AUTH CRAM-MD5\n",
            "The AUTH 2FA check failed",
            "::add-mask::$TOKEN",
        ),
        *("net use Z: \\\\server\\share /user:bob", "create user bob identified externally"),
        {"rawHeaders": ["Host", "x", "Accept", TWELVE]},
        *(
            'page.fill("#user", "bob12345")',
            'page.fill("#password", password)',
            'token.value = "foo"',
        ),
        *(
            'x {"label": "Password", "text": "Must have 8 signs"}',
            "type text into the password field",
        ),
        *("define('AUTH_KEY', 'put your unique phrase here');", 'dsn("%s:%s@tcp(%s)/%s", a, b)'),
        *('option("--token", default=None)', 'option("--tokenizer", default="base-uncased2")'),
        *('jwt.encode(payload, SECRET_KEY, algorithm="HS256")', "bcrypt.hash(password, 10)"),
        *('createHmac("sha256", key).update("something1")', "WiFi.begin(ssid, password);"),
        *('mysqli_connect($h, $u, $p, "data1")', 'hmac.new(key, b"message1", hashlib.sha256)'),
        {"command": "npx", "args": ["-y", "@example/server-files", "/tmp/x7"]},
    ],
    ids=lambda value: ascii(value)[:50],
)
def test_what_only_stands_where_a_secret_could_stays(value):
    assert redact_jsonable(value, level="private").value == value


@pytest.mark.parametrize(
    "value",
    [
        *(["-p", TWELVE], ["--password", "quiet"], {"pin": "4815162342"}),
        {"kind": "Secret", "type": "Opaque", "stringData": {"main": "quiet"}},
        {"id": "https://kv.vault.azure.net/secrets/db/1", "name": "db", "value": "quiet"},
        {"placeholder": "Enter password", "text": "quiet"},
        {"outputs": {"x": {"value": "quiet", "sensitive": True}}},
    ],
)
def test_a_secret_goes_from_a_list_of_arguments_and_a_field(value):
    assert "REDACTED" in str(redact_jsonable(value, level="private").value)


@pytest.mark.parametrize(
    ("arguments", "cleaned"),
    [
        (["mysqladmin", "-uroot", f"-p{TWELVE}", "ping"], f"-p{BLANK}"),
        (["CMD", "redis-cli", "-a", "hunter2", "ping"], BLANK),
        (["sqlplus", "-s", f"scott/{TWELVE}@orcl"], f"scott/{BLANK}@orcl"),
    ],
)
def test_arguments_are_also_read_as_one_command_line(arguments, cleaned):
    expected = [cleaned if TWELVE in word or word == "hunter2" else word for word in arguments]
    server = {"command": f"/usr/bin/{arguments[0]}", "args": arguments[1:]}

    assert redact_jsonable(arguments, level="private").value == expected
    assert redact_jsonable(server, level="private").value["args"] == expected[1:]
    assert redact_text(f"run({arguments!r}, check=True)").text == f"run({expected!r}, check=True)"
