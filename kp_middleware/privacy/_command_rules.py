"""Secrets that stand in a known place of a command."""

from kp_middleware.privacy._assignment_rules import password
from kp_middleware.privacy._names import ANY_NAME
from kp_middleware.privacy._notation import RUN, S, quoted
from kp_middleware.privacy._rules import SPACE, Rule
from kp_middleware.privacy._values import (
    is_argument,
    is_filled_in,
    is_of_router,
    is_strong_value,
    is_told,
    is_user_and_password,
    named,
)

_ANY = (
    r"""(?:"(?P<value_double>[^"\n]{1,512}+)"|'(?P<value_single>[^'\n]{1,512}+)'"""
    rf"""|(?P<value_bare>(?!["']|--?[a-z]){RUN}{{1,1024}}+))"""
)
_SINKS = (
    r"(?:sudo\b[^|\n]{0,40}\s-\w{0,4}S|[^|\n]{0,80}--(?:password|passphrase|token|secret)-"
    r"(?:stdin|fd)"
    r"|(?:sudo )?(?:passwd|chpasswd|smbpasswd|cryptsetup|kinit|su\b|gpg|openssl|sshpass)"
    r"|[^|\n]{0,60}--(?:with-token|stdin)|pass insert|secret-tool|vault )"
)

COMMAND_RULES: tuple[Rule, ...] = (
    password(  # PowerShell
        rf"(?i:ConvertTo-SecureString)(?:\s{{1,4}}-\w{{1,16}}){{0,4}}\s{{1,4}}(?:{_ANY})",
        starts=("convertto-securestring",),
        check=is_argument,
    ),
    password(  # Redis
        rf"(?i:requirepass|masterauth){S}{{1,4}}{_ANY}",
        starts=("requirepass", "masterauth"),
        check=is_argument,
    ),
    password(  # Docker, setx, aws configure, npm config
        rf"(?i:setenv|setx|env|arg|set -\w{{1,4}}|configure set|config set){S}{{1,4}}[\"']?"
        rf"[\w.:/-]{{0,80}}?{ANY_NAME}[\"']?{S}{{1,4}}{_ANY}",
        starts=("setenv", "setx", "env", "arg", "set -", "conf"),
        check=named(is_argument),
    ),
    password(  # sshpass -p …
        rf"\b(?:sshpass(?:{S}-\w){{0,3}}?|(?:docker|podman|registry|oc|az|helm)\b[^\n"
        rf"|;]{{0,20}}?login\b[^\n|;]{{0,120}}?"
        rf"|redis-cli\b[^\n|;]{{0,80}}?|ldap\w{{3,8}}\b[^\n|;]{{0,160}}?|(?:un)?zip\b[^\n"
        rf"|;]{{0,40}}?|sqlcmd\b[^\n|;]{{0,120}}?"
        rf"|bcp\b[^\n|;]{{0,120}}?|mongo\w{{0,8}}\b[^\n|;]{{0,120}}?|cqlsh\b[^\n"
        rf"|;]{{0,80}}?|psexec\b[^\n|;]{{0,120}}?|rdesktop\b[^\n|;]{{0,80}}?)"
        rf"{S}-(?:p|a|w|P|-pass)[{SPACE}=]{{1,2}}{_ANY}",
        starts=(
            *("sshpass", "docker", "podman", "registry", "oc ", "az ", "helm", "redis-cli", "ldap"),
            *("unzip", "zip", "sqlcmd", "bcp", "mongo", "cqlsh", "rdesktop", "psexec"),
        ),
        needs=(" -p", " -a", " -w"),
        check=is_filled_in,
    ),
    password(  # mysql -p…, 7z -p…
        rf"\b(?:mysql\w{{0,6}}|mariadb\w{{0,6}}|7z\w?|sshpass|rar"
        rf"|unzip|ldap\w{{3,8}}|redis-cli)\b[^\n|;]{{0,120}}?{S}-[pawP](?:\""
        rf"(?P<value_double>[^\"\n]{{3,256}}+)\"|'(?P<value_single>[^'\n]{{3,256}}+)'"
        rf"|(?P<value>(?![\"'\-]|\d{{1,5}}(?:\s|\Z)){RUN}{{1,1024}}+))",
        starts=("mysql", "mariadb", "7z", "sshpass", "rar", "unzip", "ldap", "redis-cli"),
        needs=(" -p", " -a", " -w"),
        check=is_filled_in,
    ),
    password(  # curl -u user:…
        rf"(?<![\w-])(?:-[uUa]|-A|--(?:proxy-)?user(?:name)?)[{SPACE}=:]{{1,3}}"
        rf"(?:\"(?P<value_double>[^\":\n]{{0,64}}:[^\"\n]{{0,256}}+)\"(?!:)"
        rf"|'(?P<value_single>[^':\n]{{0,64}}:[^'\n]{{0,256}}+)'"
        rf"|(?P<value_bare>(?:\"[^\":\n]{{0,64}}\"|[^{SPACE}:\"'`<>]{{0,64}}):"
        rf"(?:\"[^\"\n]{{2,256}}+\"|'[^'\n]{{2,256}}+'|(?!\d{{1,6}}(?:[/\s,;]|\Z)"
        rf"|[\"']){RUN}{{1,256}}+)))",
        starts=("-u", "-a", "--user", "--proxy-user"),
        needs=("curl", "http", "ab ", "wget"),
        check=is_user_and_password,
    ),
    password(  # openssl -passin pass:…, keytool -storepass …, vault operator unseal …
        rf"(?:-pass(?:in|out)?{S}{{1,3}}pass:|pass:(?=\S)|-(?:store|key|dest"
        rf"|src)\w{{0,8}}pass{S}{{1,3}}|/p(?:ass)?:"
        rf"|vault{S}(?:operator{S}unseal|login){S}(?:-\S{{1,40}}{S}){{0,3}}|(?:add_user"
        rf"|change_password){S}\S{{1,60}}{S}"
        rf"|htpasswd{S}-\w{{0,6}}b\w{{0,6}}{S}\S{{1,80}}{S}\S{{1,60}}{S}"
        rf"|net{S}user{S}\S{{1,60}}{S}){_ANY}",
        starts=(
            *("-pass", "pass:", "-store", "-key", "-dest", "-src", "/p", "vault", "add_user"),
            *("change_password", "htpasswd", "net"),
        ),
        check=is_argument,
    ),
    password(  # echo … | sudo -S
        rf"(?<!\w)(?:echo|printf|yes)(?:{S}-\w{{1,3}}){{0,2}}{S}{{1,3}}(?:[\"']%s(?:\\n)?[\"']{S})?"
        rf"(?:\"(?P<value_double>[^\"\n]{{1,256}}+)\"|'(?P<value_single>[^'\n]{{1,256}}+)'"
        rf"|(?P<value>(?![\"']|--?[a-z])[^{SPACE}]{{1,256}}+))"
        rf"{S}{{0,3}}\|{S}{{0,3}}{_SINKS}",
        starts=("echo", "printf", "yes"),
        needs=("|",),
        check=is_argument,
    ),
    password(  # sudo -S … <<< …
        rf"(?<![\w-])(?i:{_SINKS})[^\n<]{{0,80}}<<<{S}{{0,3}}{_ANY}",
        starts=(
            "sudo",
            "passwd",
            "chpasswd",
            "smbpasswd",
            "cryptsetup",
            "kinit",
            "su",
            "gpg",
            "openssl",
            "vault",
            "docker",
            "gh",
            "podman",
            "helm",
        ),
        needs=("<<<",),
        check=is_argument,
    ),
    password(  # chpasswd <<EOF
        r"chpasswd\b[^\n]{0,20}<<-?\s?[\"']?(\w{1,12})[\"']?\n(?P<value>(?:"
        r"(?!\1)[^\n]{1,200}\n){1,20})",
        starts=("chpasswd",),
    ),
    password(  # smbclient -U user%…
        rf"(?<![\w-])(?:-U|--user=?){S}?[\"']?[\w.\\/@-]{{1,64}}%(?P<value>{RUN}{{1,256}}+)",
        starts=("-u", "--user"),
        needs=("smb", "rpcclient", "mount", "wmi", "winexe", "net "),
        check=is_filled_in,
    ),
    password(  # sqlplus scott/…@orcl
        rf"\b(?i:sqlplus|sqlldr|expdp|impdp|rman)(?:{S}-\w{{1,6}}){{0,3}}{S}{{1,3}}[\"']?"
        rf"(?:\w{{1,12}}=)?[\w$#.-]{{1,60}}/(?P<value>[^{SPACE}@\"'`]{{1,128}}+)(?=@)",
        starts=("sqlplus", "sqlldr", "expdp", "impdp", "rman"),
        check=is_filled_in,
    ),
    password(  # enable secret 5 …, of a router
        rf"\b(?:secret|password|key|md5|auth \w{{2,8}}|priv \w{{2,8}}){S}(?:\d{S})?"
        rf"(?P<value>(?=[^{SPACE}]{{8}}){RUN}{{1,256}}+)",
        starts=("secret", "password", "key", "md5", "auth", "priv"),
        needs=("enable ", "username ", "snmp-server", "neighbor ", "tacacs", "radius"),
        check=is_of_router,
    ),
    password(
        rf"snmp-server{S}community{S}(?P<value>(?=[^{SPACE}]{{4}}){RUN}{{1,64}}+)",
        starts=("snmp-server",),
        check=is_told,
    ),
    password(  # ["-p", "…"]
        rf"[\"']-(?:p|P|-?pass|pw)[\"'],\s{{0,12}}{quoted(least=6)}",
        starts=("'-p", '"-p', "'--p", '"--p'),
        check=is_strong_value,
    ),
)
