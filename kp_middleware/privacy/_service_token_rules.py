"""Tokens of many services, that say by their own shape what they are."""

import re

from kp_middleware.privacy._rules import Rule
from kp_middleware.privacy._token_form import EDGE, END, UUID, is_issued, key, key_with
from kp_middleware.privacy._values import is_random

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
    key(EDGE + r"\d{14,17}(?:\||%7[cC])[\w-]{27,40}" + END, "0", check=is_random),
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
    key(r"SSWS\s{1,4}(?P<value>00[\w-]{38,42})" + END, "ssws"),
    key_with(EDGE + r"[12][A-Za-z0-9]{26}_[A-Za-z0-9]{18,24}" + END, "ngrok"),
    key(
        r"(?i:unseal)(?i: key)?(?: \d{1,2})?:?\s{1,4}"
        r"(?P<value>[A-Za-z0-9+/]{43,88}={0,2})(?![\w/+])",
        "unseal",
        check=is_random,
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
    ),
)

SERVICE_TOKEN_RULES: tuple[Rule, ...] = (*_SERVICES, *_MORE)
