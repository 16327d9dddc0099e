"""Rules for tokens, recognized by a prefix or another fixed part."""

import re

from kp_middleware.privacy._checks import is_random, is_unlike_words
from kp_middleware.privacy._rules import Check, Rule, value_of, words
from kp_middleware.privacy._strength import entropy

EDGE = "(?<![A-Za-z0-9])"
END = "(?![A-Za-z0-9])"
UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def key(pattern: str, *starts: str, check: Check | None = None, in_long: bool = True) -> Rule:
    """Return a rule for a token that begins with one of these prefixes."""
    return Rule("api_key", "secret", pattern, starts, check=check, in_long=in_long)


def key_with(pattern: str, *needs: str, check: Check | None = None, in_long: bool = True) -> Rule:
    """Return a rule for a token that contains one of these texts."""
    return Rule("api_key", "secret", pattern, needs=needs, check=check, in_long=in_long)


def is_issued(match: re.Match[str]) -> bool:
    """Return whether an ambiguous prefix is followed by a long run of letters and digits."""
    runs = re.findall("[A-Za-z0-9]+", value_of(match))
    longest = max(runs, key=len)
    digits = sum(map(str.isdigit, longest))
    if _is_mixed(longest):
        return len(longest) >= (16 if len(runs) < 3 else 12) and digits >= 2
    return len(longest) >= 16 and digits >= 5 and entropy(longest) > 3


def _is_mixed(text: str) -> bool:
    return any(map(str.isupper, text)) and any(map(str.islower, text))


_TELLING = words(
    "sk|rk|pk|api|apikey|key|pat|tkn|token|tok|secret|live|test|prod|sandbox|oauth|"
    "auth|access|admin|cred|svc"
)


_CLOUDS = (
    key(r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16,40}", "akia", "asia", "abia", "acca"),
    key(r"ABSK[A-Za-z0-9+/]{60,300}={0,2}", "absk"),
    key(r"bedrock-api-key-[\w=-]{20,2000}", "bedrock-api-key-"),
    key(r"(?:IQoJb3JpZ2lu|FwoGZXIvYXdz)[A-Za-z0-9+/=]{50,4096}", "iqojb3jpz2lu", "fwogzxivyxdz"),
    key(r"AIza[\w-]{30,60}", "aiza"),
    key(r"GOCSPX-[\w-]{20,60}", "gocspx-"),
    key(r"ya29\.[\w-]{20,2048}", "ya29."),
    key(EDGE + r"(?:1//0|AQ\.)[\w-]{30,200}", "1//0", "aq.", check=is_random),
    key_with(r"[\w~.-]{3}\dQ~[\w~.-]{30,40}", "q~"),
    key_with(
        EDGE + r"(?:[A-Za-z0-9]{52}(?:JQQJ99|AZDO)[A-Za-z0-9]{4,40}|[A-Za-z0-9]{76}AZDO\w{4})",
        *("jqqj99", "azdo"),
    ),
    key(EDGE + r"LTAI[A-Za-z0-9]{12,30}", "ltai", check=is_random),
    key(EDGE + r"AKID[A-Za-z0-9]{20,50}", "akid", check=is_random),
    key(r"do[oprt]_v1_[0-9a-f]{40,80}", "doo_v1_", "dop_v1_", "dor_v1_", "dot_v1_"),
    key(r"dapi[0-9a-f]{32}(?:-\d)?", "dapi"),
    key(r"tskey-[a-z]{2,12}-[\w-]{16,100}", "tskey-"),
    key(r"pscale_[a-z]{2,8}_[\w.-]{20,100}", "pscale_"),
    key(r"HRKU-[\w-]{30,100}", "hrku-"),
    key(
        r"FlyV1 [\w+/=,-]{30,4096}|fm[12]r?_[\w+/=-]{40,4096}", "flyv1", "fm1", "fm2", in_long=False
    ),
    key(r"hv[bsr]\.[\w-]{20,400}", "hvb.", "hvs.", "hvr."),
    key_with(r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{40,100}", ".atlasv1."),
)

_CODE = (
    key(r"gh[a-z]_[A-Za-z0-9_]{30,255}", "gh"),
    key(r"github_pat_\w{20,255}", "github_pat_"),
    key(r"glpat-[\w.-]{16,300}", "glpat-"),
    key(r"gl[a-z]{2,6}-[\w.-]{20,300}", "gl", check=is_random),
    key(r"GR1348941[\w-]{20,40}", "gr1348941"),
    key(r"npm_[A-Za-z0-9]{30,80}", "npm_"),
    key(r"pypi-[\w-]{40,400}", "pypi-", check=is_random),
    key(r"rubygems_[0-9a-f]{40,60}", "rubygems_"),
    key(r"dckr_[a-z]{3}_[\w-]{20,100}", "dckr_"),
    key(r"AKCp[A-Za-z0-9]{50,100}", "akcp"),
    key(EDGE + rf"(?:oy2[a-z0-9]{{43}}|cio[A-Za-z0-9]{{32}}){END}", "oy2", "cio", check=is_random),
    key(r"AT(?:ATT|CTT|BB)[A-Za-z0-9][\w=-]{20,400}", "atatt", "atctt", "atbb", check=is_random),
    key(
        r"(?:sgp|bkua|CCIPAT|figd|sbp|glsa|phx|e2b)_[\w-]{24,200}",
        *("sgp_", "bkua_", "ccipat_", "figd_", "sbp_", "glsa_", "phx_", "e2b_"),
        check=is_random,
    ),
)

_MODELS = (
    key(EDGE + r"sk-(?:[A-Za-z0-9]{1,16}-){0,3}[\w-]{20,512}", "sk-", check=is_random),
    key(EDGE + r"sk-[A-Za-z0-9]{20,512}", "sk-"),
    key(r"sk-[A-Za-z0-9]{20,512}", "sk-", check=is_random),
    key(r"hf_[A-Za-z0-9]{30,60}", "hf_"),
    key(r"api_org_[A-Za-z0-9]{30,60}", "api_org_"),
    key(EDGE + r"r8_[A-Za-z0-9]{30,60}", "r8_"),
    key(
        EDGE + r"(?:gsk|pcsk|jina|tgp_v1|fw|lsv2_[a-z]{2}|ls_)_[\w-]{24,300}",
        *("gsk_", "pcsk_", "jina_", "tgp_v1_", "fw_", "lsv2_", "ls__"),
        check=is_random,
    ),
    key(
        EDGE + r"(?:xai|tvly|nvapi|pplx|csk|ctx7sk|fc)-[\w-]{20,300}",
        *("xai-", "tvly-", "nvapi-", "pplx-", "csk-", "ctx7sk-", "fc-"),
        check=is_random,
    ),
    key(r"(?:pylf|wandb)_v\d_[\w-]{20,200}", "pylf_v", "wandb_v"),
)

_PAYMENT_AND_MAIL = (
    key(r"[sr]k_(?:live|test|prod)_[A-Za-z0-9]{10,300}", "sk_", "rk_"),
    key(r"whsec_[A-Za-z0-9+/=]{20,100}", "whsec_"),
    key(r"sq0[a-z]{3}-[\w-]{20,60}", "sq0"),
    key(r"EAAA[\w-]{50,100}", "eaaa"),
    key(r"EZ[AT]K[A-Za-z0-9]{50,60}", "ezak", "eztk"),
    key(r"access_token\$(?:production|sandbox)\$[a-z0-9$]{20,100}", "access_token$"),
    key(
        r"(?:xox[a-z](?:\.xox[a-z])?|xapp|xwfp)-(?:[A-Za-z0-9-]|%(?i:2B|2F|3D)){1,600}",
        *("xox", "xapp-", "xwfp-"),
        in_long=False,
    ),
    key(r"xoxd-[A-Za-z0-9+/=-]{20,600}", "xoxd-"),
    key(EDGE + r"SG\.[\w-]{16,40}\.[\w-]{30,80}", "sg."),
    key(r"xkeysib-[0-9a-f]{40,80}-\w{10,30}", "xkeysib-"),
    key(r"xsmtpsib-[\w-]{40,100}", "xsmtpsib-"),
    key(EDGE + r"key-[0-9a-f]{32}" + END, "key-"),
    key(EDGE + r"SK[0-9a-f]{32}" + END, "sk"),
    key_with(EDGE + r"[0-9a-f]{32}-us\d{1,2}" + END, "-us"),
    key(EDGE + r"re_[A-Za-z0-9]{6,10}_[A-Za-z0-9]{20,40}", "re_", check=is_unlike_words),
    key(EDGE + r"\d{8,10}:AA[\w-]{30,40}", "0000"),
    key_with(
        r"[MNO](?<![A-Za-z0-9].)[\w-]{22,30}\.[\w-]{6}\.[\w-]{27,45}", ".m", ".", check=is_random
    ),
)

_OTHERS = (
    key(
        EDGE + rf"(?i:(?:{'|'.join(_TELLING)})[_-](?:v\d[_-])?(?=\d{{0,511}}[a-z])"  # acme_live_…
        rf"[a-z0-9]{{20,512}}(?:[_-][\w-]{{1,256}})?){END}",
        *(word + joint for word in _TELLING for joint in "_-"),
        check=is_random,
    ),
    key(r"shp[a-z]{2}_[0-9a-fA-F]{32,64}", "shp"),
    key(r"ntn_[A-Za-z0-9]{40,60}", "ntn_"),
    key(EDGE + r"pat[A-Za-z0-9]{14}\.[0-9a-f]{40,80}", "pat"),
    key(r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}", "pmak-"),
    key(EDGE + r"NR[A-Z]{2}-[A-Za-z0-9]{20,60}", "nr", check=is_unlike_words),
    key(r"glc_eyJ[\w=+/-]{20,400}", "glc_"),
    key(r"sntry[a-z]_[\w=+/-]{40,400}", "sntry"),
    key(r"ops_eyJ[\w-]{50,4096}", "ops_eyj"),
    key(r"CFPAT-[\w-]{40,60}", "cfpat-"),
    key(r"sb_secret_[\w-]{16,60}", "sb_secret_"),
    key(r"waka_[0-9a-f-]{36}", "waka_"),
    key(EDGE + r"dp\.[a-z]{2,5}\.(?:[\w-]{1,40}\.)?[A-Za-z0-9]{30,60}", "dp."),
    key(EDGE + r"EAA[A-Za-z0-9]{60,400}", "eaa", check=is_unlike_words),
    key(EDGE + r"A{20}[A-Za-z0-9%]{40,200}", "a" * 20, check=is_random),
    key(r"AGE-SECRET-KEY-1[0-9A-Z]{40,70}", "age-secret-key-"),
    key(EDGE + r"A3-[A-Z0-9]{6}-(?:[A-Z0-9]{5,6}-|[A-Z0-9]{11}-){3,5}[A-Z0-9]{5,6}", "a3-"),
    key(r"kp_(?:[a-z]{2,8}_)?[0-9a-zA-Z]{16,256}", "kp_", check=is_unlike_words),
)

_CLOUDS_MORE = (
    key(EDGE + r"dt0[a-z]\d\d\.[A-Z0-9]{24}\.[A-Z0-9]{64}", "dt0"),
    key(EDGE + r"nf[bcopu]_[A-Za-z0-9]{36,60}", *(f"nf{kind}_" for kind in "bcopu")),
    key(EDGE + r"pul-[0-9a-f]{40}" + END, "pul-"),
    key(EDGE + r"napi_[a-z0-9]{40,80}", "napi_", check=is_random),
    key(EDGE + r"v1\.0-[0-9a-f]{24}-[0-9a-f]{146}", "v1.0-"),
    key(EDGE + r"cf(?:k|ut|at)_[A-Za-z0-9]{40,60}", "cfk_", "cfut_", "cfat_"),
    key(r"SWMTKN-1-[0-9a-z]{40,60}-[0-9a-z]{20,40}", "swmtkn-1-"),
    key(EDGE + r"K10[0-9a-f]{64}::[\w.:-]{8,200}", "k10"),
    key(EDGE + r"t1\.[\w-]{40,300}={0,2}\.[\w-]{80,120}={0,2}", "t1.", check=is_random),
    key(EDGE + r"AQVN[\w-]{35,40}", "aqvn", check=is_random),
    key_with(EDGE + r"[0-9a-z]{36}NRAL" + END, "nral"),
    key_with(EDGE + r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk" + END, "_mmk"),
)

TOKEN_RULES: tuple[Rule, ...] = (
    *_CLOUDS,
    *_CODE,
    *_MODELS,
    *_PAYMENT_AND_MAIL,
    *_OTHERS,
    *_CLOUDS_MORE,
)


_BASE_58 = "[1-9A-HJ-NP-Za-km-z]"

_SERVICES = (
    key(EDGE + rf"pat-(?:na|eu|ap)\d-{UUID}", "pat-"),
    key(EDGE + rf"(?:sdk|api)-{UUID}{END}", "sdk-", "api-"),
    key(EDGE + rf"access-(?:production|development|sandbox)-{UUID}", "access-"),
    key(EDGE + r"sq[apu]_[0-9a-f]{40}" + END, "sqa_", "sqp_", "squ_"),
    key(r"snyk_[us]at\.[0-9a-f]{8}\.eyJ[\w-]{20,2000}\.[\w-]{20,1000}", "snyk_"),
    key(EDGE + r"pk_\d{5,12}_[A-Z0-9]{32}" + END, "pk_"),
    key(
        EDGE + r"AQE[A-Za-z0-9+/=]{30,150}-[A-Za-z0-9+/=]{20,100}-[^\s\"'`<>]{8,40}",
        "aqe",
        check=is_random,
    ),
    key(r"FLWSECK(?:_TEST)?-[A-Za-z0-9]{12,64}(?:-X)?", "flwseck"),
    key(r"duffel_(?:live|test)_[\w-]{40,60}", "duffel_"),
    key(EDGE + r"sl\.(?:u\.)?[\w-]{100,2000}", "sl.", check=is_random),
    key(EDGE + r"sk\.eyJ[\w-]{20,400}\.[\w-]{20,60}", "sk.eyj"),
    key(EDGE + r"00D[A-Za-z0-9]{12}(?:[A-Za-z0-9]{3})?![\w.]{60,200}", "00d"),
    key(EDGE + rf"[t-z]prv{_BASE_58}{{100,112}}" + END, *(f"{kind}prv" for kind in "tuvxyz")),
    key(EDGE + r"pn[bu]_[A-Za-z0-9]{36,60}", "pnb_", "pnu_", check=is_random),
    key(EDGE + r"tfp_[\w.=-]{40,80}", "tfp_", check=is_random),
    key(EDGE + r"fio-u-[\w=-]{60,80}", "fio-u-", check=is_random),
    key(EDGE + r"v1\.[0-9a-f]{40}" + END, "v1."),
)

_BEFORE_RANDOM = """
    secret-live- secret-test- aio_ odt_ fo1_ dnkey- ico- tk-us- rdme_ rnd_ rpa_ vcp_ vci_
    vca_ vcr_ vck_ hbp_ hcaik_ hcxik_ crsr_ os_v2_app_ alcht_ shippo_ mdb_sa_sk_ dbtc_ dbtu_
    xaat- xapt- phc_ figoh_ figor_ figur_ sktsec_ CCIPRJ_ slk_ gta_ packagist_ p8e- CLOJARS_
    n8n_api_ cal_live_ ak- as- rf_ psk_ pa- pk-lf- sec-c- amzn1.oa2-cs.v1. lin_ zpka_ depot_
    dckr_oat_ cmVmdGtuO dG9rO y0_ y1_ xau_ mlsn. lmnr_ sk_ tr_dev_ tr_prod_ inf_ co_
"""
_PREFIXES = _BEFORE_RANDOM.split()

_MORE = (
    key(
        rf"(?<![A-Za-z0-9./+-])(?:{'|'.join(map(re.escape, _PREFIXES))})[\w=-]{{24,300}}(?![\w/+])",
        *(prefix.lower() for prefix in _PREFIXES),
        check=is_issued,
    ),
    key(  # prefixes that base64 has, too: of one length
        r"(?<![A-Za-z0-9./+-])(?:YC[\w-]{38}|BSA[\w-]{24,28}|AKLT[\w-]{43,56}|ATTA[0-9a-f]{72}"
        r"|AP[2-8A-F][A-Za-z0-9]{30,34}|AP[2-8A-F][A-Za-z0-9]{69,73}|K00\d[A-Za-z0-9]{27})(?![\w/+=-])",
        *("yc", "bsa", "aklt", "atta", "ap", "k00"),
        check=is_issued,
    ),
    key(EDGE + r"A3T[A-Z0-9]{17}" + END, "a3t", check=is_issued),
    key(  # the secret below its id
        r"(?:AKIA|ASIA|A3T[A-Z0-9])[A-Z0-9]{16}(?![A-Za-z0-9])[^A-Za-z0-9/+][\S\s]{0,120}?"
        r"(?<![A-Za-z0-9/+])(?P<value>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
        *("akia", "asia", "a3t"),
        check=is_random,
    ),
    key(rf"amzn\.mws\.{UUID}", "amzn.mws."),
    key(r"EAACEdEose0cBA[A-Za-z0-9]{10,400}", "eaacedeose0cba"),
    key(EDGE + r"\d{14,17}(?:\||%7[cC])[\w-]{27,40}" + END, "0000", check=is_random),
    key(r"s-s4t2(?:ud|af)-[0-9a-f]{64}", "s-s4t2ud-", "s-s4t2af-"),
    key(r"sgp_(?:[0-9a-fA-F]{16}|local)_[0-9a-fA-F]{40}", "sgp_"),
    key(r"(?:live|test)_\d{6,12}_[A-Za-z0-9]{24,40}", "live_", "test_"),  # a key for streams
    key(r"(?:live|test)_(?:pub_)?[0-9a-f]{31,40}" + END, "live_", "test_"),
    key(EDGE + r"oauth:[a-z0-9]{30}" + END, "oauth:"),
    key(EDGE + r"pubkey-[0-9a-f]{32}" + END, "pubkey-"),
    key_with(EDGE + r"[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}" + END, "-", check=is_random),
    key(r"sha256~[\w-]{43}", "sha256~"),
    key(EDGE + r"[ps]at\.[\w-]{22}\.[0-9a-zA-Z]{24}\.[0-9a-zA-Z]{20}", "pat.", "sat."),
    key(EDGE + r"[psbt]k\.[A-Za-z0-9]{50,90}\.[\w-]{20,24}" + END, "pk.", "sk.", "tk."),
    key(
        EDGE + r"(?:s|b|r)\.(?:[A-Za-z0-9]{24}|[\w-]{80,200})(?![\w.(-])",
        "s.",
        "b.",
        "r.",
        check=is_issued,
    ),
    key(EDGE + r"configcat-sdk-1/[\w-]{22}/[\w-]{22}", "configcat-sdk-1/"),
    key(EDGE + r"rzp_(?:live|test)_[A-Za-z0-9]{14}" + END, "rzp_"),
    key(EDGE + rf"sk_(?:sbox_|test_)?{UUID}" + END, "sk_"),
    key(EDGE + r"token-[a-z0-9]{5}:[a-z0-9]{54}" + END, "token-"),
    key(EDGE + r"st\.[0-9a-f-]{24,36}\.[0-9a-f]{32}\.[0-9a-f]{32}" + END, "st."),
    key(EDGE + r"(?:PRD|SBX)-[0-9a-f]{12}(?:-[0-9a-f]{4}){2,4}" + END, "prd-", "sbx-"),
    key(r"SSWS\s{1,4}(?P<value>00[\w-]{38,42})" + END, "ssws", in_long=False),
    key_with(EDGE + r"[12][A-Za-z0-9]{26}_[A-Za-z0-9]{18,24}" + END, "ngrok", in_long=False),
    key(
        r"(?i:unseal)(?i: key)?(?: \d{1,2})?:?\s{1,4}"
        r"(?P<value>[A-Za-z0-9+/]{43,88}={0,2})(?![\w/+])",
        "unseal",
        check=is_random,
        in_long=False,
    ),
    key(EDGE + r"NRJS-[0-9a-f]{19}" + END, "nrjs-"),
    key(
        EDGE + r"(?:api|sandbox)_(?:live|test|sandbox)(?:_[a-z]{2})?\.[\w-]{11}\.[\w-]{32}", "api_"
    ),
    key(EDGE + r"eyJrIjoi[A-Za-z0-9]{40,400}={0,3}", "eyjrijoi"),
    key(r"-(?<=\d-)(?P<value>(?![0-9a-f]{64})[A-Za-z0-9]{64})" + END, "-", check=is_issued),
    key(EDGE + r"[012]/\d{14,18}(?:/\d{14,18})?:[0-9a-f]{32}" + END, "0"),
    key(EDGE + r"KEY[0-9A-F]{32}_\w{22}", "key"),
    key(EDGE + r"IG[A-Za-z0-9]{1,3}[\w-]{100,400}" + END, "ig", check=is_random),
    key(EDGE + r"AC[0-9a-f]{32}" + END, "ac"),
    key(  # the token beside the account
        EDGE + r"AC[0-9a-f]{32}[\"']?\s{0,4}[,:]\s{0,4}[\"']?(?P<value>[0-9a-f]{32})" + END, "ac"
    ),
    key_with(EDGE + rf"0\.{UUID}\.[A-Za-z0-9]{{30}}:[A-Za-z0-9+/]{{22}}==", "=="),
    key(
        EDGE + r"(?:sc|ext|scauth|authress)_[a-z0-9]{5,30}\.[a-z0-9]{4,6}\.acc[_-][a-z0-9-]{10,32}"
        r"\.[a-z0-9+/_=-]{30,120}",
        "sc_",
        "ext_",
        "scauth_",
        "authress_",
    ),
    key(
        r"(?i:bundle_\w{3,60})[\"']?\s{0,3}(?:=>|:?=|:)\s{0,3}[\"'`]?"
        r"(?P<value>[\w.@-]{2,64}:[\w-]{4,128})(?![\w/])",
        "bundle_",
        in_long=False,
    ),
)

SERVICE_TOKEN_RULES: tuple[Rule, ...] = (*_SERVICES, *_MORE)
