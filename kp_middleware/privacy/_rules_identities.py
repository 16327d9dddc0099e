"""Rules for identity numbers: payment cards, bank accounts, national ids.

A payment card is redacted at every level if a cue or its spacing identifies it. A national id is
redacted at every level except ``private``, next to a cue; one with a distinctive format or check
digits also without a cue, in the user's regions.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module

from kp_middleware.privacy._rules import SPACE, Check, Group, Rule, in_any_case, spelled, value_of

_BEFORE, _BEHIND = 100, 40
_CARD_LENGTHS: tuple[tuple[int, int, int, tuple[int, ...]], ...] = (
    # digits of the prefix, first prefix, last prefix, lengths of the whole number
    (1, 4, 4, (16, 19)),  # Visa
    (2, 51, 55, (16,)),  # Mastercard
    (4, 2200, 2204, (16,)),  # Mir
    (4, 2221, 2720, (16,)),  # Mastercard
    (2, 34, 34, (15,)),  # American Express
    (2, 37, 37, (15,)),
    (3, 300, 305, (14,)),  # Diners Club
    (2, 36, 36, (14,)),
    (2, 38, 39, (14, 16)),
    (4, 3528, 3589, (16,)),  # JCB
    (4, 6011, 6011, (16, 19)),  # Discover
    (3, 644, 659, (16, 19)),
    (2, 60, 62, (16, 19)),  # RuPay, UnionPay
    (2, 81, 82, (16,)),
    (4, 5018, 5038, (16, 18, 19)),  # Maestro
    (4, 6304, 6304, (16, 18, 19)),
    (4, 6759, 6763, (16, 18, 19)),
)
_IBAN_LENGTHS: dict[int, str] = {
    15: "NO",
    16: "BE",
    18: "DK FI FO GL NL",
    19: "MK SI",
    20: "AT BA EE KZ LT LU XK",
    21: "CH HR LI LV",
    22: "BG BH CR DE GB GE IE ME RS VA",
    23: "AE GI IL IQ OM TL",
    24: "AD CZ ES MD PK RO SA SE SK TN VG",
    25: "LY PT ST",
    26: "IS TR",
    27: "BI DJ FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HU LB PL SV",
    29: "BR EG PS QA UA",
    30: "JO KW MU YE",
    31: "MT SC",
}
"""Countries by the length of their IBANs."""


def _bare(match: re.Match[str]) -> str:
    """Return the letters and digits, without separators."""
    return re.sub(r"[^0-9A-Za-z]", "", value_of(match))


def _valid(number: str) -> Check:
    """Return a check by python-stdnum, each module of which is imported on first use."""
    return lambda match: bool(import_module(f"stdnum.{number}").is_valid(_bare(match)))


def _is_card(match: re.Match[str]) -> bool:
    """Return whether the number has a known issuer's prefix and length, and passes Luhn."""
    digits = _bare(match)
    issued = any(
        first <= int(digits[:size]) <= last and len(digits) in lengths
        for size, first, last, lengths in _CARD_LENGTHS
    )
    return issued and _valid("luhn")(match)


def _is_iban(match: re.Match[str]) -> bool:
    """Return whether the ISO 13616 checksum is valid; national formats are not checked."""
    text = _bare(match)
    return bool(import_module("stdnum.iso7064.mod_97_10").is_valid(text[4:] + text[:4]))


def _dated(month: int, day: int) -> Check:
    """Return a check that the digits at these positions are a month and a day."""

    def checked(match: re.Match[str]) -> bool:
        text = _bare(match)
        return 1 <= int(text[month : month + 2]) <= 12 and 1 <= int(text[day : day + 2]) <= 31

    return checked


def _near(words: str, check: Check | None) -> Check:
    """Return a check that one of the words is nearby, before or after the match."""

    def announced(match: re.Match[str]) -> bool:
        around = match.string[max(0, match.start() - _BEFORE) : match.end() + _BEHIND]
        return _any_of(words).search(around) is not None and (check is None or check(match))

    return announced


@cache
def _any_of(words: str) -> re.Pattern[str]:
    return re.compile(rf"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:{words})(?![a-z])")


_GAP = rf"[{SPACE}.:#=|º°№'\"`\\/_()-]"
_NUMBER_WORD = in_any_case(
    "|".join(spelled(("numbers?|numero|número|numéro|nummer|nr|no|n|num|code|card|id",)))
)
_NUMBER_WORD = f"(?:{_NUMBER_WORD})"
_DIGITS = r"\d(?:[ .\-/]?\d)"


_ANY_ID = (
    "national_id|national_identity|identity_number|identity_card|id_number|id_no|id_card|personal_id"
    "|tax_id|tax_number"
)


def _formed(
    label: str, region: str, words: str, value: str, start: str, check: Check | None
) -> tuple[Rule, Rule]:
    """Return rules for a distinctive format: one near a word, one anywhere in the user's regions.

    Words are divided by ``|``, and ``_`` in one is any joint or none.
    """
    pattern = rf"(?<![\w.+-])(?:{value})(?![\w-]|\.\d)"
    names = spelled(f"{words}|{_ANY_ID}".split("|"))
    needs = tuple(dict.fromkeys(max(name.split("_"), key=len) for name in names))
    announced = _near("|".join(names).replace("_", "[ _-]?"), check)
    return (
        Rule(label, "identity", pattern, (start,), needs, announced),
        Rule(label, "identity", pattern, (start,), check=check, region=region),
    )


def _cued(
    label: str, cues: str, value: str, check: Check | None = None, *, group: Group = "identity"
) -> Rule:
    """Return a rule for a value after a cue; ``|`` separates cues, ``_`` is any joint or none."""
    names = spelled(cues.split("|"))
    announced = in_any_case("|".join(names).replace("_", "[ _-]?"))
    pattern = (
        rf"(?<![A-Za-z])(?i:{announced})(?i:{_GAP}{{0,4}}{_NUMBER_WORD}){{0,2}}"
        rf"{_GAP}{{0,6}}(?i:(?:is|was|ist|est|es){_GAP}{{1,3}})?(?P<value>{value})(?![A-Za-z0-9])"
    )
    starts = tuple(dict.fromkeys(cue.partition("_")[0] for cue in names))
    return Rule(label, group, pattern, starts, check=check)


def _iban_pattern() -> str:
    """Return a pattern with each country's own length, so that the next word stays."""
    lengths = []
    for length, countries in _IBAN_LENGTHS.items():
        groups, rest = divmod(length - 4, 4)
        tail = rf"[ \u00a0-]?[A-Z0-9]{{{rest}}}" if rest else ""
        groups_of_4 = rf"(?:[ \u00a0-]?[A-Z0-9]{{4}}){{{groups}}}"
        lengths.append(rf"(?:{countries.replace(' ', '|')})\d\d{groups_of_4}{tail}")
    return "|".join(lengths)


_ROW = r"[ \t,;|]{1,3}\d"  # the next number of a row
_AFTER_A_CARD = r"[ \t,;|]{1,3}(?:\d\d?/\d\d|\d{3}(?!\d|[ \t,;|]{1,3}\d))"  # a date, a code

_MONEY = (
    Rule(
        "credit_card",
        "sensitive",
        r"(?<![A-Za-z0-9.-])(?<!\d[ \t,;|])(?<!\d, )"
        r"(?:\d{4}([ .\u00a0-])\d{4}\1\d{4}\1\d{4}|\d{4}([ .\u00a0-])\d{6}\2\d{5})"
        rf"(?![\w-]|\.\d)(?!(?!{_AFTER_A_CARD}){_ROW})",
        ("0000",),
        check=_is_card,
    ),
    _cued(
        "credit_card",
        "credit_card|debit_card|card|cc|visa|mastercard|amex|maestro|kreditkarte|carte|tarjeta|carta|pan",
        _DIGITS + "{11,18}",
        _valid("luhn"),
        group="sensitive",
    ),
    _cued(
        "card_code",
        "cvv|cvv2|cvc|cvc2|csc|card_verification|security_code",
        r"\d{3,4}",
        group="sensitive",
    ),
    Rule(  # nothing but its digits say that it is one
        "credit_card",
        "identity",
        r"(?<![A-Za-z0-9.-])(?:\d{14,19}|\d{4}([ .\u00a0-])\d{4}\1\d{4}\1\d{1,7}"
        r"|\d{4}([ .\u00a0-])\d{6}\2\d{4,5})(?![\w-]|\.\d)",
        ("0",),
        check=_is_card,
    ),
    Rule(
        "iban",
        "identity",
        rf"(?<![A-Za-z0-9])(?:{_iban_pattern()})(?![A-Za-z0-9])",
        ("A",),
        check=_is_iban,
    ),
)

_CHECKS: dict[str, Check | None] = {
    "-": None,
    "month-day": _dated(2, 4),
    "day-month": _dated(2, 0),
    **{
        name: _valid(name)
        for name in (
            "luhn",
            "verhoeff",
            "gb.nhs",
            "fr.nir",
            "es.dni",
            "es.nie",
            "de.idnr",
            "it.codicefiscale",
            "se.personnummer",
            "ch.ssn",
            "cn.ric",
        )
    },
}

# A row: label, region, how it begins, check, cues, and after a plus those that only stand before;
# below, indented, the form, which a cue may be near, and what else may follow a cue directly.
_TABLE = r"""
us_ssn US 0 - ssn|social_security|soc_sec|itin|taxpayer +tax_id|ein|tin
    (?!000|666|9)\d{3}([- ])(?!00)\d\d\1(?!0000)\d{4}
    \d{3}[ -]?\d\d[ -]?\d{4}|\d\d-\d{7}
ca_sin - - luhn sin|social_insurance
    \d{3}[ -]?\d{3}[ -]?\d{3}
br_cpf BR 0 - cpf|contribuinte
    \d{3}\.\d{3}\.\d{3}-\d\d
    \d{3}\.?\d{3}\.?\d{3}-?\d\d
br_cnpj BR 0 - cnpj
    \d\d\.\d{3}\.\d{3}/\d{4}-\d\d
mx_curp MX A - curp
    [A-Z]{4}\d{6}[HM][A-Z]{5}[A-Z0-9]\d
cl_rut CL 0 - rut|rol_único
    \d{1,2}\.\d{3}\.\d{3}-[\dkK]
uk_nino GB A - nino|national_insurance|ni_number|ni_no +ni
    (?!BG|GB|NK|KN|TN|NT|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z](?: ?\d\d){3} ?[A-D]
    [A-Z]{2}(?: ?\d\d){3} ?[A-D]
uk_nhs GB 0 gb.nhs nhs
    \d{3}[ -]\d{3}[ -]\d{4}
    \d{3}[ -]?\d{3}[ -]?\d{4}
fr_nir FR 0 fr.nir nir|insee|sécurité_sociale|securite_sociale|social_security
    [12378] ?\d\d ?\d\d ?\d[\dAB] ?\d{3} ?\d{3} ?\d\d
es_dni ES 0 es.dni dni|nif
    \d{8}-?[A-HJ-NP-TV-Z]
es_nie ES A es.nie nie|nif|dni
    [XYZ]-?\d{7}-?[A-HJ-NP-TV-Z]
de_tax_id DE 0 de.idnr steuer_id|idnr|steueridentifikationsnummer|steuer_identifikationsnummer
|steuerliche|tin
    [1-9]\d ?\d{3} ?\d{3} ?\d{3}
de_social - - - rvnr|rentenversicherungsnummer|sozialversicherungsnummer|versicherungsnummer
    \d\d ?\d{6} ?[A-Z] ?\d{3}
it_codice_fiscale IT A it.codicefiscale codice_fiscale|cf|tax_code|fiscal_code
    [A-Z]{6}[0-9LMNP-V]{2}[A-EHLMPRST][0-9LMNP-V]{2}[A-Z][0-9LMNP-V]{3}[A-Z]
    [A-Za-z]{6}\w{2}[A-Za-z]\w{2}[A-Za-z]\w{3}[A-Za-z]
nl_bsn - - - bsn|burgerservicenummer
    \d{8,9}|\d{4}\.\d\d\.\d{3}
pl_pesel - - - pesel
    \d{11}
pl_nip - - - nip|regon
    DIGITS{8,13}
se_personnummer SE 0 se.personnummer personnummer|pnr|samordningsnummer|personal_identity
    (?:19|20)?\d{6}[-+]\d{4}
    (?:19|20)?\d{6}[-+]?\d{4}
fi_hetu FI 0 day-month hetu|henkilötunnus|personal_identity
    [0-3]\d[01]\d{3}[-+A-FU-Y]\d{3}[0-9A-FHJ-NPR-Y]
ch_ahv CH 0 ch.ssn ahv|avs|oasi|sozialversicherung|sozialversicherungsnummer
    756([. ]?)\d{4}\1\d{4}\1\d\d
be_nrn BE 0 - rijksregister|rijksregisternummer|registre_national|niss|insz|nrn|national_number
    \d\d\.\d\d\.\d\d-\d{3}\.\d\d
national_id - - - cpr|fødselsnummer|fodselsnummer|fnr|svnr|nif|cif|nie|dni|nir|nic|cnp|egn|oib
|jmbg|amka|afm|pps|ppsn|rodné_číslo|rijksregisternummer|sécurité_sociale|securite_sociale
|steuer_id|steuernummer|steueridentifikationsnummer|steuerliche_identifikationsnummer|idnr
|tax_number|tax_no|vat_id|vat_number|steuer_identifikationsnummer|id_nr
    [A-Z]?DIGITS{6,14}[ -]?[A-Z]{0,2}
in_aadhaar IN 0 verhoeff aadhaar|aadhar|uidai +uid
    [2-9]\d{3}([ -])\d{4}\1\d{4}
    \d{4}[ -]?\d{4}[ -]?\d{4}
in_pan IN A - pan|permanent_account
    [A-Z]{3}[ABCFGHLJPT][A-Z]\d{4}[A-Z]
tw_id TW A - 身分證|身份證|身分證字號
    [A-Z][1289]\d{8}
kr_rrn KR 0 month-day rrn|주민등록번호|resident_registration
    \d{6}-[1-8]\d{6}
cn_id CN 0 cn.ric 身份证|身份证号|身份证号码|身份證|resident_identity|citizen_id
    [1-9]\d{5}(?:19|20)\d\d(?:0[1-9]|1[0-2])[0-3]\d{4}[\dXx]
sg_nric SG A - nric|fin
    [STFG]\d{7}[A-Z]
hk_id HK A - hkid|身份證|香港身份證
    [A-Z]{1,2}\d{6}\([0-9A]\)
au_tfn - - - tfn|tax_file|medicare|abn
    DIGITS{7,10}
za_id - - - south african_id|rsa_id|sa_id
    \d{13}
tr_kimlik - - - kimlik|tckn|tc_no
    [1-9]\d{10}
passport - - - passport|reisepass|passeport|pasaporte|passaporto|paszport|護照|护照|여권
    [A-Z]{0,3}\d{5,9}[A-Z]?
driving_licence - - - driving_licence|driving_license|drivers_license|driver's_license
|driver_license|führerschein|permis de conduire
    (?=\D{0,5}\d(?:\D?\d){3})[A-Z0-9][A-Z0-9-]{5,19}
national_id - - - national_id|personal_id|identity|identification|citizen_id|government_id
|resident_id|id_number|id_no|id_card|nid|身分證字號|身分證|身份證|身份证号码|身份证|주민등록번호|マイナンバー|rrn|ausweisnummer
|personalausweis
    (?:[A-Z]{1,4}[ -]?)?DIGITS{5,17}[ -]?[A-Z]{0,2}|[A-Z]{5}\d{4}[A-Z]|[A-Z]{6}\w{9}[A-Z]
"""


def _national() -> Iterator[Rule]:
    """Yield the rules of the table: near a cue, anywhere in a region, right after a cue."""
    for row in re.findall(r"^\S.*(?:\n[ |].*)+", _TABLE, re.MULTILINE):
        head, form, *loose = re.split(r"\n ", row.replace("\n|", "|").replace("DIGITS", _DIGITS))
        label, region, start, check, cues = head.split(maxsplit=4)
        near, _, before = cues.partition(" +")
        if region == "-":
            yield _cued(label, near, form.strip(), _CHECKS[check])
            continue
        yield from _formed(label, region, near, form.strip(), start, _CHECKS[check])
        if loose:
            yield _cued(label, f"{near}|{before}".rstrip("|"), loose[0].strip())


SENSITIVE_RULES: tuple[Rule, ...] = (*_MONEY, *_national())
