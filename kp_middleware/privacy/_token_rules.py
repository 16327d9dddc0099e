"""Tokens that say by their own shape what they are: vendors' prefixes, keys in armour, JWTs.

From what vendors publish of their formats. A prefix that no ordinary word contains needs no left
edge: a token glued to something is still a token.
"""

from kp_middleware.privacy._rules import Check, Rule
from kp_middleware.privacy._values import is_random, is_unlike_words

_EDGE = "(?<![A-Za-z0-9])"
_END = "(?![A-Za-z0-9])"
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_BASE_58 = "[1-9A-HJ-NP-Za-km-z]"
_TELLING = (
    *("sk", "rk", "pk", "api", "apikey", "key", "pat", "tkn", "token", "tok", "secret", "live"),
    *("test", "prod", "sandbox", "oauth", "auth", "access", "admin", "cred", "svc"),
)


def _key(pattern: str, *starts: str, check: Check | None = None) -> Rule:
    return Rule("api_key", "secret", pattern, starts, check=check)


def _key_with(pattern: str, *needs: str, check: Check | None = None) -> Rule:
    return Rule("api_key", "secret", pattern, needs=needs, check=check)


_CLOUDS = (
    _key(r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16,40}", "akia", "asia", "abia", "acca"),
    _key(r"ABSK[A-Za-z0-9+/]{60,300}={0,2}", "absk"),
    _key(r"bedrock-api-key-[\w=-]{20,2000}", "bedrock-api-key-"),
    _key(r"(?:IQoJb3JpZ2lu|FwoGZXIvYXdz)[A-Za-z0-9+/=]{50,4096}", "iqojb3jpz2lu", "fwogzxivyxdz"),
    _key(r"AIza[\w-]{30,60}", "aiza"),
    _key(r"GOCSPX-[\w-]{20,60}", "gocspx-"),
    _key(r"ya29\.[\w-]{20,2048}", "ya29."),
    _key(_EDGE + r"(?:1//0|AQ\.)[\w-]{30,200}", "1//0", "aq.", check=is_random),
    _key_with(r"[\w~.-]{3}\dQ~[\w~.-]{30,40}", "q~"),
    _key_with(
        _EDGE + r"(?:[A-Za-z0-9]{52}(?:JQQJ99|AZDO)[A-Za-z0-9]{4,40}|[A-Za-z0-9]{76}AZDO\w{4})",
        *("jqqj99", "azdo"),
    ),
    _key(_EDGE + r"LTAI[A-Za-z0-9]{12,30}", "ltai", check=is_random),
    _key(_EDGE + r"AKID[A-Za-z0-9]{20,50}", "akid", check=is_random),
    _key(r"do[oprt]_v1_[0-9a-f]{40,80}", "doo_v1_", "dop_v1_", "dor_v1_", "dot_v1_"),
    _key(r"dapi[0-9a-f]{32}(?:-\d)?", "dapi"),
    _key(r"tskey-[a-z]{2,12}-[\w-]{16,100}", "tskey-"),
    _key(r"pscale_[a-z]{2,8}_[\w.-]{20,100}", "pscale_"),
    _key(r"HRKU-[\w-]{30,100}", "hrku-"),
    _key(r"FlyV1 [\w+/=,-]{30,4096}|fm[12]r?_[\w+/=-]{40,4096}", "flyv1", "fm1", "fm2"),
    _key(r"hv[bsr]\.[\w-]{20,400}", "hvb.", "hvs.", "hvr."),
    _key_with(r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{40,100}", ".atlasv1."),
)

_CODE = (
    _key(r"gh[a-z]_[A-Za-z0-9_]{30,255}", "gh"),
    _key(r"github_pat_\w{20,255}", "github_pat_"),
    _key(r"glpat-[\w.-]{16,300}", "glpat-"),
    _key(r"gl[a-z]{2,6}-[\w.-]{20,300}", "gl", check=is_random),
    _key(r"GR1348941[\w-]{20,40}", "gr1348941"),
    _key(r"npm_[A-Za-z0-9]{30,80}", "npm_"),
    _key(r"pypi-[\w-]{40,400}", "pypi-", check=is_random),
    _key(r"rubygems_[0-9a-f]{40,60}", "rubygems_"),
    _key(r"dckr_[a-z]{3}_[\w-]{20,100}", "dckr_"),
    _key(r"AKCp[A-Za-z0-9]{50,100}", "akcp"),
    _key(
        _EDGE + rf"(?:oy2[a-z0-9]{{43}}|cio[A-Za-z0-9]{{32}}){_END}", "oy2", "cio", check=is_random
    ),
    _key(r"AT(?:ATT|CTT|BB)[A-Za-z0-9][\w=-]{20,400}", "atatt", "atctt", "atbb", check=is_random),
    _key(
        r"(?:sgp|bkua|CCIPAT|figd|sbp|glsa|phx|e2b)_[\w-]{24,200}",
        *("sgp_", "bkua_", "ccipat_", "figd_", "sbp_", "glsa_", "phx_", "e2b_"),
        check=is_random,
    ),
)

_MODELS = (
    _key(_EDGE + r"sk-(?:[A-Za-z0-9]{1,16}-){0,3}[\w-]{20,512}", "sk-", check=is_random),
    _key(_EDGE + r"sk-[A-Za-z0-9]{20,512}", "sk-"),
    _key(r"sk-[A-Za-z0-9]{20,512}", "sk-", check=is_random),
    _key(r"hf_[A-Za-z0-9]{30,60}", "hf_"),
    _key(r"api_org_[A-Za-z0-9]{30,60}", "api_org_"),
    _key(_EDGE + r"r8_[A-Za-z0-9]{30,60}", "r8_"),
    _key(
        _EDGE + r"(?:gsk|pcsk|jina|tgp_v1|fw|lsv2_[a-z]{2}|ls_)_[\w-]{24,300}",
        *("gsk_", "pcsk_", "jina_", "tgp_v1_", "fw_", "lsv2_", "ls__"),
        check=is_random,
    ),
    _key(
        _EDGE + r"(?:xai|tvly|nvapi|pplx|csk|ctx7sk|fc)-[\w-]{20,300}",
        *("xai-", "tvly-", "nvapi-", "pplx-", "csk-", "ctx7sk-", "fc-"),
        check=is_random,
    ),
    _key(r"(?:pylf|wandb)_v\d_[\w-]{20,200}", "pylf_v", "wandb_v"),
)

_PAYMENT_AND_MAIL = (
    _key(r"[sr]k_(?:live|test|prod)_[A-Za-z0-9]{10,300}", "sk_", "rk_"),
    _key(r"whsec_[A-Za-z0-9+/=]{20,100}", "whsec_"),
    _key(r"sq0[a-z]{3}-[\w-]{20,60}", "sq0"),
    _key(r"EAAA[\w-]{50,100}", "eaaa"),
    _key(r"EZ[AT]K[A-Za-z0-9]{50,60}", "ezak", "eztk"),
    _key(r"access_token\$(?:production|sandbox)\$[a-z0-9$]{20,100}", "access_token$"),
    _key(
        r"(?:xox[a-z](?:\.xox[a-z])?|xapp|xwfp)-(?:[A-Za-z0-9-]|%(?i:2B|2F|3D)){1,600}",
        *("xox", "xapp-", "xwfp-"),
    ),
    _key(r"xoxd-[A-Za-z0-9+/=-]{20,600}", "xoxd-"),
    _key(_EDGE + r"SG\.[\w-]{16,40}\.[\w-]{30,80}", "sg."),
    _key(r"xkeysib-[0-9a-f]{40,80}-\w{10,30}", "xkeysib-"),
    _key(r"xsmtpsib-[\w-]{40,100}", "xsmtpsib-"),
    _key(_EDGE + r"key-[0-9a-f]{32}" + _END, "key-"),
    _key(_EDGE + r"SK[0-9a-f]{32}" + _END, "sk"),
    _key_with(_EDGE + r"[0-9a-f]{32}-us\d{1,2}" + _END, "-us"),
    _key(_EDGE + r"re_[A-Za-z0-9]{6,10}_[A-Za-z0-9]{20,40}", "re_", check=is_unlike_words),
    _key(_EDGE + r"\d{8,10}:AA[\w-]{30,40}", "0"),
    _key_with(
        r"[MNO](?<![A-Za-z0-9].)[\w-]{22,30}\.[\w-]{6}\.[\w-]{27,45}", ".m", ".", check=is_random
    ),
)

_OTHERS = (
    _key(
        _EDGE + rf"(?i:(?:{'|'.join(_TELLING)})[_-](?:v\d[_-])?(?=\d{{0,511}}[a-z])"  # acme_live_…
        rf"[a-z0-9]{{20,512}}(?:[_-][\w-]{{1,256}})?){_END}",
        *(word + joint for word in _TELLING for joint in "_-"),
        check=is_random,
    ),
    _key(r"shp[a-z]{2}_[0-9a-fA-F]{32,64}", "shp"),
    _key(r"ntn_[A-Za-z0-9]{40,60}", "ntn_"),
    _key(_EDGE + r"pat[A-Za-z0-9]{14}\.[0-9a-f]{40,80}", "pat"),
    _key(r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}", "pmak-"),
    _key(_EDGE + r"NR[A-Z]{2}-[A-Za-z0-9]{20,60}", "nr", check=is_unlike_words),
    _key(r"glc_eyJ[\w=+/-]{20,400}", "glc_"),
    _key(r"sntry[a-z]_[\w=+/-]{40,400}", "sntry"),
    _key(r"ops_eyJ[\w-]{50,4096}", "ops_eyj"),
    _key(r"CFPAT-[\w-]{40,60}", "cfpat-"),
    _key(r"sb_secret_[\w-]{16,60}", "sb_secret_"),
    _key(r"waka_[0-9a-f-]{36}", "waka_"),
    _key(_EDGE + r"dp\.[a-z]{2,5}\.(?:[\w-]{1,40}\.)?[A-Za-z0-9]{30,60}", "dp."),
    _key(_EDGE + r"EAA[A-Za-z0-9]{60,400}", "eaa", check=is_unlike_words),
    _key(_EDGE + r"A{20}[A-Za-z0-9%]{40,200}", "a" * 20, check=is_random),
    _key(r"AGE-SECRET-KEY-1[0-9A-Z]{40,70}", "age-secret-key-"),
    _key(_EDGE + r"A3-[A-Z0-9]{6}-(?:[A-Z0-9]{5,6}-){3,5}[A-Z0-9]{5,6}", "a3-"),
    _key(r"kp_(?:[a-z]{2,8}_)?[0-9a-zA-Z]{16,256}", "kp_", check=is_unlike_words),
)

_CLOUDS_MORE = (
    _key(_EDGE + r"dt0[a-z]\d\d\.[A-Z0-9]{24}\.[A-Z0-9]{64}", "dt0"),
    _key(_EDGE + r"nf[bcopu]_[A-Za-z0-9]{36,60}", *(f"nf{kind}_" for kind in "bcopu")),
    _key(_EDGE + r"pul-[0-9a-f]{40}" + _END, "pul-"),
    _key(_EDGE + r"napi_[a-z0-9]{40,80}", "napi_", check=is_random),
    _key(_EDGE + r"v1\.0-[0-9a-f]{24}-[0-9a-f]{146}", "v1.0-"),
    _key(_EDGE + r"cf(?:k|ut|at)_[A-Za-z0-9]{40,60}", "cfk_", "cfut_", "cfat_"),
    _key(r"SWMTKN-1-[0-9a-z]{40,60}-[0-9a-z]{20,40}", "swmtkn-1-"),
    _key(_EDGE + r"K10[0-9a-f]{64}::[\w.:-]{8,200}", "k10"),
    _key(_EDGE + r"t1\.[\w-]{40,300}={0,2}\.[\w-]{80,120}={0,2}", "t1.", check=is_random),
    _key(_EDGE + r"AQVN[\w-]{35,40}", "aqvn", check=is_random),
    _key_with(_EDGE + r"[0-9a-z]{36}NRAL" + _END, "nral"),
    _key_with(_EDGE + r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk" + _END, "_mmk"),
)

_SERVICES = (
    _key(_EDGE + rf"pat-(?:na|eu|ap)\d-{_UUID}", "pat-"),
    _key(_EDGE + rf"(?:sdk|api)-{_UUID}{_END}", "sdk-", "api-"),
    _key(_EDGE + rf"access-(?:production|development|sandbox)-{_UUID}", "access-"),
    _key(_EDGE + r"sq[apu]_[0-9a-f]{40}" + _END, "sqa_", "sqp_", "squ_"),
    _key(r"snyk_[us]at\.[0-9a-f]{8}\.eyJ[\w-]{20,2000}\.[\w-]{20,1000}", "snyk_"),
    _key(_EDGE + r"pk_\d{5,12}_[A-Z0-9]{32}" + _END, "pk_"),
    _key(
        _EDGE + r"AQE[A-Za-z0-9+/=]{30,150}-[A-Za-z0-9+/=]{20,100}-[^\s\"'`<>]{8,40}",
        "aqe",
        check=is_random,
    ),
    _key(r"FLWSECK(?:_TEST)?-[A-Za-z0-9]{12,64}(?:-X)?", "flwseck"),
    _key(r"duffel_(?:live|test)_[\w-]{40,60}", "duffel_"),
    _key(_EDGE + r"sl\.(?:u\.)?[\w-]{100,2000}", "sl.", check=is_random),
    _key(_EDGE + r"sk\.eyJ[\w-]{20,400}\.[\w-]{20,60}", "sk.eyj"),
    _key(_EDGE + r"00D[A-Za-z0-9]{12}(?:[A-Za-z0-9]{3})?![\w.]{60,200}", "00d"),
    _key(_EDGE + rf"[t-z]prv{_BASE_58}{{100,112}}" + _END, *(f"{kind}prv" for kind in "tuvxyz")),
    _key(_EDGE + r"pn[bu]_[A-Za-z0-9]{36,60}", "pnb_", "pnu_", check=is_random),
    _key(_EDGE + r"tfp_[\w.=-]{40,80}", "tfp_", check=is_random),
    _key(_EDGE + r"fio-u-[\w=-]{60,80}", "fio-u-", check=is_random),
    _key(_EDGE + r"v1\.[0-9a-f]{40}" + _END, "v1."),
)

_ARMOUR = (
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
        r"Private-Lines: \d{1,3}\s+(?:[A-Za-z0-9+/=]{1,80}\s{1,4}){1,200}"
        r"|b3BlbnNzaC1rZXktdjE[A-Za-z0-9+/=\s]{60,20000}",
        ("private-lines: ", "b3blbnnzac1rzxktdje"),
    ),
    Rule(
        "password_hash",
        "secret",
        r"\$(?:2[abxy]|1|5|6|7|y|gy|apr1|argon2(?:id?|d)|pbkdf2[\w-]{0,12}|scrypt)"
        r"\$[./A-Za-z0-9$,=+-]{20,300}",
        ("$",),
    ),
    Rule(
        "webhook_url",
        "secret",
        r"https://(?:hooks\.slack(?:-gov)?\.com/[a-z]{2,12}|hooks\.zapier\.com/hooks"
        r"|discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks|chat\.googleapis\.com/v1/spaces"
        r"|[a-z0-9-]{1,60}\.webhook\.office\.com/\w{1,20}|oapi\.dingtalk\.com/robot"
        r"|open\.(?:feishu|larksuite)\.cn/open-apis)[/?][\w/?=&%.@-]{8,400}",
        ("https://",),
    ),
)

TOKEN_RULES: tuple[Rule, ...] = (
    *_CLOUDS,
    *_CODE,
    *_MODELS,
    *_PAYMENT_AND_MAIL,
    *_OTHERS,
    *_CLOUDS_MORE,
    *_SERVICES,
    *_ARMOUR,
)
