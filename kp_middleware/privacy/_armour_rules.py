"""Secrets in a wrapping of their own: keys in armour, JWTs, hashes of passwords, hooks."""

import re

from kp_middleware.privacy._rules import Rule

_KIND = re.compile(r"(?:^|\n)[ \t]{0,4}kind:[ \t]{0,4}[\"']?[Ss]ecret\b")
_HOOKS = (
    (r"hooks\.slack(?:-gov)?\.com/[a-z]{2,12}", "hooks."),
    (r"hooks\.zapier\.com/hooks", "hooks."),
    (r"(?:ptb\.|canary\.)?discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks", "discord"),
    (r"chat\.googleapis\.com/v1/spaces", "chat."),
    (r"[a-z0-9-]{1,60}\.webhook\.office\.com/\w{1,20}", "webhook.office."),
    (r"outlook\.office(?:365)?\.com/webhook\w{0,4}", "outlook."),
    (r"oapi\.dingtalk\.com/robot", "oapi."),
    (r"open\.(?:feishu|larksuite)\.cn/open-apis", "open."),
    (r"open\.larksuite\.com/open-apis", "open."),
    (r"qyapi\.weixin\.qq\.com/cgi-bin/webhook", "qyapi."),
    (r"hook\.(?:[a-z0-9]{2,4}\.)?(?:integromat|make)\.com", "hook."),
    (r"maker\.ifttt\.com/(?:trigger|use)", "maker."),
    (r"events\.pagerduty\.com/integration", "events."),
    (r"api\.softlayer\.com/(?:soap|rest|xmlrpc)/v\d(?:\.\d)?", "api.softlayer"),
)


def _is_of_a_secret(match: re.Match[str]) -> bool:
    """The same manifest says that it is one."""
    before = match.string[max(0, match.start() - 2000) : match.start()].rpartition("\n---")[2]
    after = match.string[match.end() : match.end() + 2000].partition("---")[0]
    return _KIND.search(before + after) is not None and "{{" not in match["value"]


ARMOUR_RULES: tuple[Rule, ...] = (
    Rule(
        "jwt",
        "secret",
        r"(?<![\w-])eyJ[\w-]{10,4096}+\.[\w-]{0,8192}+\.[\w-]{0,8192}+(?:\.[\w-]{1,8192}+){0,2}",
        ("eyj",),
    ),
    Rule(
        "private_key",
        "secret",
        r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?:(?!-----)[\S\s]){1,20000}?-----END [A-Z0-9 ]{0,60}-----"
        r"|[A-Za-z0-9+/=\s\\]{0,20000})",  # cut off
        ("-----begin ",),
    ),
    Rule(
        "private_key",
        "secret",
        r"---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----(?:(?!----)[\S\s]){1,20000}"
        r"(?:---- END SSH2 ENCRYPTED PRIVATE KEY ----)?",
        ("---- begin ",),
    ),
    Rule(
        "private_key",
        "secret",
        r"Private-Lines: \d{1,3}\s+(?:[A-Za-z0-9+/=]{1,80}(?:\s{1,4}|\Z)){1,200}"
        r"|b3BlbnNzaC1rZXktdjE[A-Za-z0-9+/=\s]{60,20000}",
        ("private-lines: ", "b3blbnnzac1rzxktdje"),
    ),
    Rule(
        "password_hash",
        "secret",
        r"\$(?:2[abxy]|1|5|6|7|8|9|y|gy|sha1|apr1|argon2(?:id?|d)|pbkdf2[\w-]{0,12}|scrypt)"
        r"\$[./A-Za-z0-9$,=+-]{20,300}",
        ("$",),
    ),
    Rule(
        "password_hash",
        "secret",
        r"\$krb5(?:asrep|tgs|pa)\$\d{1,2}\$[\w.$*@:/-]{32,8192}",
        ("$krb5",),
    ),
    Rule(  # Django's, Werkzeug's, LDAP's
        "password_hash",
        "secret",
        r"(?<!\w)(?:pbkdf2[_:]sha\d{1,3}[$:]\d{3,8}\$|scrypt:\d{3,8}:\d{1,2}:\d{1,2}\$|bcrypt_sha256\$)"
        r"[\w.$+/=-]{20,300}|\{(?:SSHA\d{0,3}|PBKDF2[\w-]{0,10}|CRYPT)\}[\w.$+/=-]{20,300}",
        ("pbkdf2", "scrypt:", "bcrypt_sha256$", "{ssha", "{pbkdf2", "{crypt}"),
    ),
    Rule(
        "webhook_url",
        "secret",
        rf"(?:https?://)?(?:{'|'.join(pattern for pattern, _ in _HOOKS)})[/?][\w/?=&%.@-]{{8,400}}",
        ("http", *dict.fromkeys(start for _, start in _HOOKS)),
    ),
    Rule(
        "webhook_url",
        "secret",
        r"[a-z]{4,5}://(?:[a-z0-9-]{1,40}\.){0,3}thingsboard\.(?:cloud|io)/api/v1/(?P<value>[\w-]{16,64})",
        needs=("thingsboard.",),
    ),
    Rule(  # the values of a Secret of Kubernetes
        "password",
        "secret",
        r"(?<![\w-])data:[ \t]{0,4}\n(?P<value>(?:(?:[ \t]{1,12}[^\n]{0,4096}+"
        r"|[ \t]{0,12}#[^\n]{0,200}+)(?=\n|\Z)\n?){1,200}(?<!\n))",
        ("data:",),
        ("secret",),
        check=_is_of_a_secret,
        reach=2000,
    ),
)
