"""The forms in which a secret stands beside its name, each with the signs that it cannot hold."""

import random
import string

ASSIGNMENTS = (
    *("DB_PASSWORD={}\nNEXT=1", "export API_KEY={}", "password: {}\nuser: a", "password = {}"),
    *("password = '{}'", 'String password = "{}";', "$password = '{}';", "'password' => '{}',"),
    *(':password => "{}"', '{{password: "{}", user: "a"}}'),
    *('log: {{"user": "a", "password": "{}"}}',),
    *('user="bob" password="{}"', 'mysql --user="root" --password="{}"', 'a="" password="{}"'),
    *('DB_USER="bob" DB_PASSWORD="{}" ./run.sh', 'docker run -e A="b" -e PASSWORD="{}" x'),
    *("docker run -e PASSWORD={} x", 'level="info" api_key="{}" status="ok"'),
    *("login user=bob password={} status=ok", "tool --password {} --v", "tool --password={} --v"),
    *('password = """{}"""', "password = '''{}'''", 'var password = @"{}";', "password: !!str {}"),
    *('let password: &str = "{}";', 'char password[] = "{}";', "password: |\n  {}"),
    *('if password == "{}":', "if (password === '{}') {{", 'if "{}" == password:'),
    *('os.environ.get("PW") or "{}"', 'getenv("PW", "{}")', 'process.env.PASSWORD || "{}"'),
    *('config.get("password", "{}")', 'params["password"] = "{}"', "**Password:** {}"),
    *("Das Passwort lautet: {}\n", "密码：{}\n", 'connect(host="h", password="{}", port=1)'),
    *("The password is {} and it works.", 'The password is "{}".', "log in with password {} now"),
)  # fmt: skip
CALLS = (
    *('client.login("bob", "{}")', 'new NetworkCredential("u", "{}")', "HTTPBasicAuth('u', '{}')"),
    *('smtp.login(user, "{}")', 'new PDO($dsn, "root", "{}")', 'req.SetBasicAuth("u", "{}")'),
    *('builder.password("{}")', 'setPassword("{}")', 'ConvertTo-SecureString "{}" -AsPlainText'),
    *("CREATE USER bob IDENTIFIED BY '{}';", "ALTER USER bob PASSWORD '{}';"),
    *("INSERT INTO users (name, password) VALUES ('a', 'b1'), ('bob', '{}');",),
    *('variable "db_password" {{\n  type = string\n  default = "{}"\n}}',),
)  # fmt: skip
BUILT = (
    *(
        'password = ("{}")',
        'String password = new String("{}");',
        "const token = Buffer.from('{}');",
    ),
    *('let password = String::from("{}");', 'password := []byte("{}")', 'password = x or "{}"'),
    *('SecretStr("{}")', 'def get_password(): return "{}"', "password = <<EOF\n{}\nEOF"),
    *('Set-Variable -Name password -Value "{}"', 'password = hashed(b"{}")'),
)
COMPARED = (
    *('expect(password).toBe("{}")', 'assertEqual(password, "{}")', 'strcmp(password, "{}")'),
    *('Assert.AreEqual("{}", config.Password)', '"{}".equals(password)', 'password shouldBe "{}"'),
    *('assertThat(password).isEqualTo("{}")', 'if password in ("{}",):'),
)
TOLD = (
    *("user bob / pass {}", "bob / {} is the login", "Die PIN lautet {}", "API-Schl\u00fcssel: {}"),
    *("wifi: SSID Home, key {}", "log in with bob and {}", "Zugangsdaten: bob / {}"),
)
COMMANDS = (
    *("sshpass -p {} ssh host", "mysql -u root -p'{}' app", "docker login -u bob -p '{}'"),
    *("curl -u 'bob:{}' https://h/", 'curl --user "bob:{}" https://h/', "redis-cli -a '{}' ping"),
    *("echo '{}' | sudo -S apt update", 'echo "{}" | docker login -u b --password-stdin'),
    *('echo "bob:{}" | chpasswd', 'sudo -S true <<< "{}"', "vault operator unseal {}"),
    *("openssl enc -k '{}' -in f", "printf '%s' '{}' | passwd --stdin", "wpa_passphrase Home '{}'"),
    *("ssh-keygen -N '{}' -f k", "curl -b 'sid={}' https://h", "crackmapexec smb h -p '{}'"),
    *("Authorization: Bearer {}", 'curl -H "X-Api-Key: {}" https://h', "X-Auth-Token: {}"),
)  # fmt: skip
PLACES = (
    *("user\tpassword\tcity\nbob\t{}\tRome\n", "tokens:\n  - {}\n", "passwords:\n- '{}'\n"),
    *('["-p", "{}"]', '["--password", "{}"]', "WIFI:S:home;T:WPA;P:{};;", "WPA2 key: {}"),
    *("login: admin / {}", "credentials: bob / {}", "smbclient -U bob%{} //host/share"),
    *("find('password').send_keys('{}')", "page.fill('#password', '{}')"),
    *("sqlplus scott/{}@orcl", "enable secret 5 {}", "username bob password 7 {}"),
    "aws_access_id = {}",
    *("  password                      = '{}'", "Password                : {}\nUser : bob"),
    *("db.password:" + " " * 30 + "{}\n", "db_password           = <<EOF\n{}\nEOF"),
    *('exec.Command("mysql", "-uroot", "-p{}")', 'test: ["CMD", "redis-cli", "-a", "{}"]'),
    *('parser.add_argument("-p", "--password", type=str, default="{}")', 'jwt.verify(t, "{}", f)'),
    *('password: str = Field(default="{}")', 'os.environ.get("DB_PASSWORD", default="{}")'),
    *("createHmac('sha256', '{}')", 'get_password_hash("{}")', 'hmac.new(b"{}", message, sha256)'),
    *('buildConfigField("String", "API_KEY", "\\"{}\\"")', 'WiFi.begin("home", "{}");'),
    *('pymysql.connect("db", "root", "{}", "x")', 'request.basic_auth("bob", Some("{}"))'),
    *("define('AUTH_KEY',         '{}');", 'mysqli_connect("db", "root", "{}", "data1")'),
    *("127.0.0.1:6379> AUTH {}\nOK", "ALTER USER bob IDENTIFIED BY {};", "REDIS_AUTH={}"),
    "enter {} in the password box",
    *('{{"action": "type", "selector": "#password", "text": "{}"}} next', 'call.bearer_auth("{}")'),
    *("net use Z: \\\\server\\share {} /user:bob", "    stats auth admin:{}\n", "::add-mask::{}"),
    *('page.fill("input[type=password]", "{}")', 'page.type("#pass", "{}")'),
    *('document.getElementById("password").value = "{}"', 'Filled "{}" into the password field'),
    'Action Input: {{"element": "Password field", "ref": "e12", "text": "{}"}}',
    *("Nutze {} als Passwort", "utilise {} comme mot de passe", "usa {} como contraseña"),
    *("{}をパスワードとして使用", "user bob pass {}", "Das Passwort wurde auf {} geändert"),
    *("secrets:\n  db: {}\n", "app:\n  passwords:\n    bob: '{}'\n", '[passwords]\nbob = "{}"\n'),
    *('secrets = {{\n  db = "{}"\n}}', "kind: Secret\nstringData:\n  main: {}\n"),
    *("spawn('sshpass', ['-p', '{}', 'ssh', host])", 'run(["mysql", "-u", user, "-p{}", db])'),
    *('const dbPassword string = "{}"', 'var   apiKey       string = "{}"'),
    *("+ mysql -u root '-p{}' app", "mc alias set m http://h key {}"),
    *('- textbox "Password" [active] [ref=e5]: {}', '1) "name"\n2) "bob"\n3) "password"\n4) "{}"'),
    *("page.getByRole('x', {{ name: 'Password' }}).fill('{}')", "smtp_password|{}\nuser|bob"),
    *("driver.find_element(By.ID, 'pass').send_keys('{}')", "[smtp.h.example]:587 bob:{}"),
    *("INSERT INTO api_keys (id, owner, key) VALUES (7, 'bob', '{}');", "conn scott/{}@prod"),
    *("COPY public.api_keys (id, name, key) FROM stdin;\n1\tci\t{}\n\\.", "pw for the zip: {}"),
    *("your temporary password is\n\n    {}\n\nPlease change it", "wifi code at the office: {}"),
    *('"tokens": ["{}", "a"]', '<td>Password</td><td><code>{}</code></td>', "__Token__ - `{}`"),
    *('new AuthenticationHeaderValue("Bearer", "{}")', "DB password? {}", 'Minio(h, "bob", "{}")'),
    *('JIRA(h, basic_auth=("bob", "{}"))', "The password would be {}.", "password? me: {}"),
    *('type  = "SecureString"\n  value = "{}"', 'expect "assword:"; send "{}\\r"'),
    *("oathtool --totp -b {}", 'CryptoJS.AES.encrypt(text, "{}")', "C:\\> type secret.txt\n{}"),
    *("“password”: “{}”", "<Password><Value>{}</Value></Password>", "USER bob\nPASS {}\n"),
    *("$ openssl rand -base64 9\n{}\n", "$ cat token.txt\n{}", "my login for it: bob / {}"),
    *("password was changed from q8Zr4kPw1xTn to {}", "click on 'password' and type '{}'"),
)  # fmt: skip
OF_TOKENS = (
    *('Mistral("{}")', 'new OAuth2Client(CLIENT_ID, "{}", "https://h")', "Here is my key\n{}\nok"),
    *('OAuth1("{}", "a1")', 'OAuth1(key, secret,\n  "a1",  "{}")', 'Session("{}", owner_key="a1")'),
    *("INSERT INTO tokens VALUES (1, 'refresh', '{}', '2026-09-01');",),
)
OF_HEXADECIMAL = (
    *("openweathermap key {}", "datadog api {}", "Access token was successfully created: {}"),
    *('AES.new(bytes.fromhex("{}"), mode)', "createCipheriv(a, Buffer.from('{}', 'hex'), iv)"),
    *('{{"github-oauth": {{"github.com": "{}"}}}}', "wandb login --relogin {}"),
)
NAMES = (
    *("OPENAI_KEY", "API_KEY_OPENAI", "PASSWORD_FOR_DB", "TOKEN_CI", "dbpass", "PGPASS", "rootpw"),
    *("creds", "secret_v2", "pin", "otp", "ACME_KEY", "ACME_TOKEN", "GITLAB_PAT", "acmeKey"),
)  # fmt: skip
LANGUAGES = (
    *("Passwort", "Kennwort", "parola d'ordine", "密码", "密碼", "パスワード", "şifre", "heslo"),
    *("पासवर्ड", "كلمة المرور", "סיסמה", "mật khẩu", "adgangskode", "salasana", "пароль"),
    *("비밀번호", "hasło", "wachtwoord", "senha", "contraseña", "mot de passe", "lösenord"),
    *("токен", "ключ API"),
)  # fmt: skip
RESTRICTED = (
    *(("<>&\"", '<user username="tomcat" password="{}"/>'), ("<>&", "<password>{}</password>")),
    *(("<>&", "<key>password</key>\n  <string>{}</string>"), ("}", "pw=${{DB_PASSWORD:-{}}}")),
    *(("{};", "Driver={{SQL}};UID=a;PWD={{{}}};"), (";", "Server=a;User Id=b;Password={};")),
    *(("/?#@<>[]", "see https://bob:{}@h.example/x"), (":", "localhost:5432:app:bob:{}")),
    *(("|", "| user | password |\n|---|---|\n| bob | {} |"),),
    *(("|", " user | password\n------+----------\n bob  | {}\n"),),
    *((",\"'", "user,password\nbob,{}\n"),),
)  # fmt: skip

_BASE_62 = string.ascii_letters + string.digits
_SYMBOLS = "!@#$%^&*()-_=+[]{};:,.?/<>|~"
ALPHABETS = {
    "base 62": _BASE_62,
    "base 64": _BASE_62 + "+/",
    "hexadecimal": "0123456789abcdef",
    "symbols": _BASE_62 + _SYMBOLS,
}
_SIZES = {"base 62": 16, "base 64": 24, "hexadecimal": 32, "symbols": 16}


def passwords(alphabet: str, count: int, without: str = "") -> list[str]:
    """Random ones, the same ones each time."""
    letters = random.Random(alphabet)
    signs = [sign for sign in ALPHABETS[alphabet] if sign not in without]
    return ["".join(letters.choices(signs, k=_SIZES[alphabet])) for _ in range(count)]
