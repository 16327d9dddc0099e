"""Harmless values that resemble secrets are kept, beside real secrets that are removed."""

import base64
import json
import random
import struct

import made_up
import pytest

from kp_middleware.privacy import redact_jsonable

SYMBOLS = "f0K4G!A4" + made_up.characters(6) + "#_x"
WEAK = "hunter" + "2"
ADMIN = "admin" + "123"
WORD = "sun" + "shine"
KINDS = {}
"""By kind: what stays, and the secrets that go, each as a form and its value."""

KINDS["workflows"] = (
    [
        "with:\n  token: ${{ secrets.GITHUB_TOKEN }}",
        "  password: ${{ secrets.DOCKER_PASSWORD }}\n  username: bob",
        "NPM_TOKEN=${{ secrets.NPM_TOKEN }} npm publish",
        "github-token: ${{ steps.app.outputs.token }}  # of the app",
        "tool --token ${{ secrets.T }} run",
        "permissions:\n  contents: read\n  id-token: write",
        "secrets: inherit",
        {"permissions": {"id-token": "write"}, "secrets": "inherit"},
        {"with": {"token": "${{ secrets.GITHUB_TOKEN }}", "password": "{{ vault.password }}"}},
    ],
    [
        ("token: ${{{{ secrets.T || '{}' }}}}", SYMBOLS),
        ("id-token: {}", made_up.TOKEN),
        ("secrets: {}", WEAK),
        ("password: {}  # ${{{{ secrets.T }}}}", WEAK),
        *(("password: {}", value) for value in (WORD, "write", "inherit")),
    ],
)


def ssh_key(seed):
    numbers = random.Random(seed)
    parts = (b"ssh-rsa", b"\x01\x00\x01", b"\x00" + numbers.randbytes(384))
    body = b"".join(struct.pack(">I", len(part)) + part for part in parts)
    return f"ssh-rsa {base64.b64encode(body).decode()} bob@laptop"


def picture(seed):
    header = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0"
    body = header + random.Random(seed).randbytes(60)
    return f"data:image/png;base64,{base64.b64encode(body).decode()}"


SQUARE = "EA" + "AA" + made_up.characters(60)
KINDS["public keys and pictures"] = (
    [*map(ssh_key, range(20)), *map(picture, range(20))],
    [("we saw {} there", SQUARE), ("client('{}')", SQUARE), ("/v2/{}?x=1", SQUARE)],
)

KINDS["calls and members"] = (
    [
        *("const token = createJWT(user);", "const token = signJWT({ id: user.id });"),
        *("const token = crypto.randomUUID()", "apiKey = loadFromDB()", "password = hashMD5(raw)"),
        *(
            "creds = config.getCredentialsByURI(r)",
            "token = getUserById(id)",
            "token = createV4UUID()",
        ),
        *("secret = decryptAES256GCM(blob)", "token := uuid.NewV4()", "token = readFromS3(bucket)"),
        *("const apiKey = process.env.OPENAI_API_KEY!;", "secret: process.env.AUTH_SECRET!,"),
        *("const token = this.#token;", "cookies = this.#headers.cookies", "token = data?.token"),
        *("accessToken: account?.access_token,", "token = session?.user?.accessToken"),
        *("token: TokenType.ACCESS", "token = Secrets.GITHUB", "apiKey = BuildConfig.MAPS_KEY"),
        *("password = random_password.db.result", "token = account.accessToken"),
        "secret_key = tls_private_key.ca.private_key_pem",
    ],
    [
        ('token = createJWT("{}")', SYMBOLS),
        ("password = hashMD5('{}')", SYMBOLS),
        ("const token = crypto.randomUUID() || '{}'", SYMBOLS),
        ('const apiKey = process.env.OPENAI_API_KEY! || "{}";', made_up.TOKEN),
        *(
            (form, value)
            for form in ("password = {}", "password: {}\nuser: bob", "DB_PASSWORD={}")
            for value in ("Winter.SNOW", "john.smith", "abc?.def9", "my.secret!9")
        ),
        *(("token: {}", "Ab" + made_up.characters(6) + "URL(x9"),),
        ("password = {}", "getJWT#" + made_up.characters(4) + "(x)"),
    ],
)


def basic(text):
    return base64.b64encode(text.encode()).decode()


KINDS["flags, headers and addresses in prose"] = (
    [
        *("Basic JavaScript knowledge is required", "Basic PostgreSQL tuning", "Basic OAuth2 flow"),
        *("Basic HttpAuthenticationHandler", "Basic AuthenticationMiddlewareConfig here"),
        *("The --password flag is deprecated", "Must set --password to a non-empty value"),
        *("pass the --token argument", "Using --password via the CLI is insecure."),
        *("--password must be given", "use --token or --password."),
        "msbuild app.sln /p:Configuration=Release /p:Platform=x64",
        "dotnet publish /p:PublishSingleFile=true /p:Version=1.2.3",
        *("[API key]: https://platform.example.com/api-keys", "token: http://localhost:8080/x."),
        *(
            "Get your token: https://example.co/settings/tokens",
            'secret = "https://h.io/secrets/db"',
        ),
        'WWW-Authenticate: Bearer realm="x", error="invalid_token"',
        'www-authenticate: Bearer resource_metadata="https://mcp.example.com/.well-known/x"',
    ],
    [
        *((form, basic(f"bob:{WEAK}")) for form in ("Basic {}", "Authorization: Basic {}")),
        *(("Basic {}", basic(value)) for value in (SYMBOLS, WEAK, f"x:{WORD}", made_up.TOKEN)),
        *(("tool --password {} run", value) for value in (WEAK, WORD, ADMIN, "tofu", "viaduct")),
        *(("tool --password '{}' run", value) for value in ("option", "value")),
        *(("xfreerdp /u:bob /p:{} /v:h", value) for value in (SYMBOLS, WEAK, "Gx7k=9Lw2")),
        *(("token: https://h.example/reset/{}", value) for value in (made_up.TOKEN, made_up.HEX)),
        ("token: https://h.example/reset/{}", made_up.uuid()),
        *(("API key: https://h.example/?k={}", value) for value in (made_up.TOKEN, WORD)),
        ("secret: https://bob:{}@h.example/x", WORD),
        *(("WWW-Authenticate: Bearer {}", value) for value in (made_up.TOKEN, SYMBOLS)),
    ],
)

ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:prod/db-AbCdEf"
MOUNTED = {"volumes": [{"secret": {"secretName": "web-tls", "defaultMode": 420}}]}
LISTED = {"ARN": ARN, "Name": "prod/db", "LastChangedDate": 1715422951, "CreatedDate": "2024-05-11"}
KINDS["names of secrets"] = (
    [
        *(ARN, f"valueFrom: {ARN}", f'"SecretArn": "{ARN}"', {"Secrets": [LISTED]}),
        *(MOUNTED, f"pod {json.dumps(MOUNTED)}", f"got {json.dumps({'Secrets': [LISTED]})}"),
        *({"imagePullSecrets": [{"name": "regcred"}]}, "existingSecret: my-secret"),
        *("tlsSecret: wildcard-tls-2024", "secret: my-tls-secret", {"secret": "my-tls-secret"}),
        *({"secrets": ["DB_PASSWORD", "API_KEY"]}, 'log {"secrets": ["DB_PASSWORD", "API_KEY"]}'),
        {"secrets": [{"name": "GH_TOKEN", "created_at": "2019-08-10T14:59:22Z"}]},
    ],
    [
        *(
            (form, value)
            for form in (
                *('{{"secret": "{}"}}', '{{"secrets": ["{}"]}}', '{{"secrets": {{"db": "{}"}}}}'),
                *('{{"secrets": [{{"name": "A", "value": "{}"}}]}}', '{{"jwtSecret": "{}"}}'),
                *('log {{"secret": {{"value": "{}"}}}}', '{{"secrets": {{"created_at": "{}"}}}}'),
                *("secret: {}", "clientSecret: {}", "registrySecret: {}", "tlsSecret: {}"),
                "existingPassword: {}",
            )
            for value in (WEAK, WORD, SYMBOLS, made_up.HEX)
        ),
        *((form, "keyboard-cat") for form in ("secret: {}", "jwtSecret: {}", "clientSecret: {}")),
        *(("existingSecret: {}", value) for value in (made_up.TOKEN, made_up.HEX)),
        ('{{"secrets": [{{"name": "{}"}}]}}', made_up.TOKEN),
    ],
)

TOLD = (
    *("is too short (minimum is 8 characters)", "The password field is required."),
    *("Password must contain at least one uppercase letter.", "Passwords do not match"),
)
KINDS["messages, labels and types"] = (
    [
        *({"errors": {"password": [text]}} for text in TOLD),
        *(f"422 {json.dumps({'errors': {'password': [text]}})}" for text in TOLD),
        *(f'{{"password": "{text}", "n": 1}}' for text in TOLD),
        *("Password: at least 8 characters", "password: 8-64 characters"),
        *("Password: min. 8 characters, 1 number", "Passwort: mindestens 8 Zeichen"),
        *("パスワードは8文字以上で入力してください", "密码是6-20个字符"),
        {"password": "8文字以上です"},
        {"i18n": {"password": "Password", "forgot_password": "Forgot password?"}},
        'log {"i18n": {"password": "Password", "forgot_password": "Forgot password?"}}',
        *({"auth": {"type": "bearer"}}, {"auth": {"provider": "google"}}),
        *('{"field": "password", "message": "must not be empty"}', '{"password": 123}'),
        "kind: Deployment # of the secret\ndata:\n  mode: quiet\n",
        "message Login { string user = 1; string password = 2; }",
        *(
            "  optional string api_key = 12;",
            "map<string, string> secrets = 5;",
            "  Credentials credentials = 7;",
        ),
    ],
    [
        *(
            (form, value)
            for form in (
                *('{{"errors": {{"password": "{}"}}}}', 'log {{"errors": {{"password": ["{}"]}}}}'),
                *('{{"i18n": {{"password": "{}"}}}}', '{{"auth": {{"password": "{}"}}}}'),
                *('{{"auth": {{"key": "{}"}}}}', '{{"auth": ["bob", "{}"]}}', '{{"auth": "{}"}}'),
                *('{{"password": "{}", "n": 1}}', '("password", "{}")', "password: {}"),
            )
            for value in (WEAK, WORD, SYMBOLS, "correct horse battery staple")
            if value != "correct horse battery staple" or form.startswith("{{")
        ),
        *(("password: {}", value) for value in ("8-64-Tiger", "min8!Xk", "12monkeys")),
        *(("{}は{}です".format("パスワード", "{}"), value) for value in (WEAK, SYMBOLS, "8Mozi!x")),
        ('{{"password": "{}"}}', "the cat is on the mat"),
        *(('{{"password": "{}"}}', value) for value in ("must be nice", "max power 9", "read")),
        ('string password = "{}";', "315"),
        ("string password = {};", SYMBOLS),
    ],
)

KINDS["variables and names of storage"] = (
    [
        *("createUser({ email, password: hashedPassword })", "  password: hashedPassword,"),
        *("User(password=hashed_pw)", "Client(token=tok)", "Client(api_key=key, timeout=5)"),
        *("db.connect({ user: dbUser, password: dbPassword })", "connect(host=h, password=pw)"),
        *('const TOKEN_KEY = "auth_token";', 'ACCESS_TOKEN_KEY = "access_token"'),
        *("const STORAGE_KEY = 'app:settings';", 'const STORAGE_KEY = "todo-app-items-v1";'),
    ],
    [
        *(
            (form, value)
            for form in (
                *("{{user: bob, password: {}}}", "login(user=bob, password={})", "X(password={})"),
                *("  password: {},", 'X({{ email, password: "{}" }})', "X(password='{}')"),
                *('TOKEN_KEY = "{}"', 'STORAGE_KEY = "{}"', 'SECRET_KEY = "{}"', "password={}"),
            )
            for value in (WEAK, WORD, SYMBOLS, "mySecretKey", "supersecret")
        ),
        *(('STORAGE_KEY = "{}"', value) for value in (made_up.TOKEN, made_up.base64_of(64))),
        *(('API_KEY = "{}"', value) for value in ("auth_token", "test_key")),
    ],
)

LONG_NAMES = (
    *("_ToV2ConfigManagementGitConfig", "bigIntAndBufferInt64Check", "getUserByIdV2QueryState2"),
    *("convertUtf8ToBase64AndSendHttp2", "getOrCreateOAuth2ClientForV2Api"),
    *("TestOAuth2TokenRefreshReturns401", "Http2StreamFrameToHttpObjectCodec"),
)
KINDS["long names with digits"] = (
    [
        *(
            form.format(name)
            for form in ("v2.x = {}(self, 1)", "x={};", "f: {},")
            for name in LONG_NAMES
        ),
        "playlist=PL" + made_up.characters(32),
        f'"thought_signature": "Cq{made_up.characters(60)}"',
        *(
            {"a": {"type": "v1alpha2"}, "b": f"foo.io/{version}"}
            for version in ("v1alpha2", "v2beta1")
        ),
    ],
    [
        *(
            (form, value)
            for form in ("VENDOR_THING = '{}'", "x={} y", "f: {},", "x={}(1)", "thing: {}(self)")
            for value in (made_up.TOKEN, made_up.TOKEN[::-1], made_up.TOKEN * 2)
        ),
        *(("signature={}", value) for value in (made_up.TOKEN, made_up.TOKEN[::-1])),
    ],
)
KINDS["names of objects that hold passwords, too"] = (
    [
        "existingSecret: db-credentials",
        "tlsSecret: wildcard-tls-2024",
        {"secrets": {"name": "prod/db", "namespace": "web"}},
        "const STORAGE_KEY = 'todo-app-items-v1';",
        "token = user?.accessToken",
        "cos/sin/tan: 4500",
        "jwt.verify(token, 'keys/public.pem', {algorithms: ['RS256']})",
        "jwt.decode(token, 'utf-8')",
    ],
    [
        *(
            (form, value)
            for form in ("existingSecretPassword: {}", "ca_client_secret: {}", "PULL_SECRET={}")
            for value in (WEAK, WORD + "-2024")
        ),
        *(('{{"secrets": {{"name": "{}"}}}}', value) for value in (WEAK, "Summer2024" + "!")),
        ("COOKIE_KEY = '{}'", "cookie-" + "monster"),
        ("TOKEN_KEY = '{}'", "auth-token-" + "monkey"),
        ("password: {}", "Tiger?." + "Form"),
        ("TAN: {}", "450" + "012"),
        *(
            (form, SYMBOLS * 500)
            for form in ("net use Z: \\\\srv\\share {}", "alter user bob identified by {};")
        ),
    ],
)
FINGERPRINT = made_up.characters(16, "0123456789ABCDEF")
KINDS["what people, tools and logs say"] = (
    [
        *("Enter your login and password here", "your login or password is wrong"),
        *("**Secrets are removed**: keys go first", "_passwords are stored_: no"),
        *("test_ResetPasswordTokenIsSingleUse PASSED", "def test_IntegerDivisionError(self):"),
        *("weight_decay_scheduler_with_linear_warmup_steps = 3", '"AzureCogsText2SpeechTool"'),
        *("glibc-langpack-en-2.28-251.el8_10.5.x86_64", "PASS: tests/auth/test_login2.py"),
        *("usermod -a -G docker bob", "7z x a.7z -aoa", "docker run -u node:node x # http"),
        *("redis-cli -p 6379 ping", "git log -p -S<text>", "gcloud x --secret=my-secret"),
        *(f"user.signingkey={FINGERPRINT}", f"Signing key: {FINGERPRINT}"),
        *(f"Public key: {made_up.base64_of(44)}", f"fun:_ZN2v8{made_up.characters(30)}E"),
        *('{"Key": "uploads/2024/report.pdf"}', {"Key": "logs/2024/01/part-00001.parquet"}),
        *('log {"key":3145,"texas":3146,"token":12}', '{"@types/jsonwebtoken": "^9.0.6"}'),
        *('<a accesskey="f" href="/forgot-password">Forgot password?</a>', 'token = "#dddddd"'),
        *(".key-home:before{padding-right:.4em;content:1}", '"cls_token": "[CLS]"'),
        *('log("token=%r", token)', 'print("Error: token=" + token)\nprint("x")', "token=11098"),
        *("token (:obj:`str`): The token", "secrets (`dict[str]`): Names", "token is Name.Tag"),
        *('credential: use git_prompt instead of "getpass"', "el token es inválido: token: roto"),
        *(
            "token check (CVE-2026-68376)",
            "the pass for the museum is Museum24",
            "the primary key is user_profile_2024_id",
            "heslo: minimálně 8 znaků",
            'read("/etc/passwd", "utf8")',
            'hf="Xenova/ms-L-4-v2"',
        ),
        *("login(password:$p){token}", "https://user:pass@sub.example.com:8080/p/a/t/h?query=x#y"),
        *('await read.password("New password: ")', "authorization=dest.authorization, x=1"),
        *("const UNEXPECTED_TOKEN = /^Unexpected token/", "Update jwt to 1.0.0"),
        {"content": base64.b64encode(b"# Read me\nfirst, then Build 2 of it\n").decode()},
    ],
    [
        *(("default login bob password {}", value) for value in (WEAK, WORD, SYMBOLS)),
        *(("we saw test_{} there", value) for value in (made_up.TOKEN, made_up.HEX)),
        *(("redis-cli -a {} ping", value) for value in (WEAK, SYMBOLS)),
        *((form, WEAK) for form in ("docker login -u a -p {} x", "mysql -p{} x")),
        *(('{{"key": "{}"}}', value) for value in (made_up.TOKEN, made_up.characters(20) + "/9")),
        *(('log {{"password":{},"n":3}}', value) for value in ("31459265", "9876543210")),
        *(("token: {}", value) for value in (made_up.TOKEN, "314159265", "Xk4" + WORD)),
        *(('<p class="password">{}</p>', value) for value in (WEAK, SYMBOLS)),
        *(("curl -u bob:{} https://x", value) for value in (WEAK, WORD, SYMBOLS)),
        *(
            (form, value)
            for form in (
                *("cargo login {}", "tool --key {} x", "databricks <<< x --value {}"),
                *("poetry config pypi-token.pypi {}", "my openai key is {}", "API 密钥是 {}"),
                *("Incorrect API key provided: {}. See", "la clé est {}", "use this key: {}"),
                *('client.run("{}")', "new Stripe('{}')", "polar_oat_{}", "/reset-password/{}"),
                "recovery_codes={}",
            )
            for value in (made_up.TOKEN, made_up.TOKEN[::-1])
        ),
        *(
            (form, value)
            for form in (
                *("tool --pass {} x", "jenkins -auth bob:{} build", "<b>Password:</b> {}<br>"),
                *("The password is <code>{}</code>", "Password:\n```\n{}\n```", "mdp : {}"),
                *("Password for the elastic user (x): {}", "Пароль от сервера: {}", "Пароль — {}"),
                *("temporary password is generated for root@localhost: {}", "Şifrem {}"),
                *("the pass is {}", "the password from {} to newer", "비번: {}"),
                *('new Sequelize("d", "bob", "{}", x)', 'Const PASSWORD As String = "{}"'),
                *("كلمة المرور هي {}", "Parola este {}", "mosquitto_passwd -b file bob {}"),
                *("echo '{}' | vercel env add DB production", "ENV.fetch('DB_PASS') {{ '{}' }}"),
                *("page.locator('#pass').fill('{}')", "snmpget -v2c -c {} host x"),
                *(
                    '["x", {{"name": "Password", "ref": "e4", "value": "{}"}}, 1',
                    's:8:"password";s:9:"{}"',
                ),
            )
            for value in (SYMBOLS, "Xk4q!" + made_up.characters(6) + "7z")
        ),
        *((form, WEAK) for form in ("password for user bob: {}", "use the password {}")),
        *((f"{word} {{}}", "051" + "005") for word in ("Your code is", "código de verificación:")),
        ('content: "{}"', base64.b64encode(made_up.TOKEN[:31].encode()).decode()[:41]),
    ],
)
KNOWN = {"a": {"token": "v1alpha2"}, "b": "foo.io/v1alpha2"}


def test_a_version_that_was_once_a_token_stays_elsewhere():
    assert redact_jsonable(KNOWN, level="private").value["b"] == KNOWN["b"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_only_reads_like_a_secret_stays(kind):
    left = [(text, redact_jsonable(text, level="private").value) for text in KINDS[kind][0]]

    assert [pair for pair in left if pair[0] != pair[1]] == []


@pytest.mark.parametrize("kind", KINDS)
def test_its_neighbour_goes(kind):
    texts = [(form.format(value), value) for form, value in KINDS[kind][1]]

    left = [(text, redact_jsonable(text, level="private").value, value) for text, value in texts]

    assert [pair for *pair, value in left if made_up.remains(value, str(pair[1]))] == []
