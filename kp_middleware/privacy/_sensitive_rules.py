"""Numbers given once in a life: cards, bank accounts, national ids.

An id whose form or check digits leave little to chance is found anywhere; the others only after a
word that announces them.
"""

from kp_middleware.privacy import _check_digits as check_digits
from kp_middleware.privacy._id_checks import bare, dated, weighted
from kp_middleware.privacy._rules import SPACE, Check, Rule, in_any_case, spelled

_GAP = rf"[{SPACE}.:#=|º°№'\"`\\/_()-]"
_NUMBER_WORD = in_any_case(
    "|".join(spelled(("numbers?|numero|número|numéro|nummer|nr|no|n|num|code|card|id",)))
)
_NUMBER_WORD = f"(?:{_NUMBER_WORD})"
_DIGITS = r"\d(?:[ .\-/]?\d)"


def _found(label: str, value: str, start: str = "0", check: Check | None = None) -> Rule:
    """Found anywhere."""
    pattern = rf"(?<![\w.+-])(?:{value})(?![\w-]|\.\d)"
    return Rule(label, "sensitive", pattern, (start,), check=check)


def _cued(label: str, cues: str, value: str, check: Check | None = None) -> Rule:
    """Found only after a cue; cues are divided by ``|``, and ``_`` in one is any joint or none."""
    names = spelled(cues.split("|"))
    announced = in_any_case("|".join(names).replace("_", "[ _-]?"))
    pattern = (
        rf"(?<![A-Za-z])(?i:{announced})(?i:{_GAP}{{0,4}}{_NUMBER_WORD}){{0,2}}"
        rf"{_GAP}{{0,6}}(?i:(?:is|was|ist|est|es){_GAP}{{1,3}})?(?P<value>{value})(?![A-Za-z0-9])"
    )
    starts = tuple(dict.fromkeys(cue.partition("_")[0] for cue in names))
    return Rule(label, "sensitive", pattern, starts, check=check)


def _iban_pattern() -> str:
    """Each country has its own length, so that the word after the number stays."""
    lengths = []
    for length, countries in check_digits.IBAN_LENGTHS.items():
        groups, rest = divmod(length - 4, 4)
        tail = rf"[ \u00a0-]?[A-Z0-9]{{{rest}}}" if rest else ""
        groups_of_4 = rf"(?:[ \u00a0-]?[A-Z0-9]{{4}}){{{groups}}}"
        lengths.append(rf"(?:{countries.replace(' ', '|')})\d\d{groups_of_4}{tail}")
    return "|".join(lengths)


_MONEY = (
    Rule(
        "credit_card",
        "sensitive",
        r"(?<![A-Za-z0-9.-])(?:\d{14,19}|\d{4}([ .\u00a0-])\d{4}\1\d{4}\1\d{1,7}"
        r"|\d{4}([ .\u00a0-])\d{6}\2\d{4,5})(?![\w-]|\.\d)",
        ("0",),
        check=bare(check_digits.card),
    ),
    _cued(
        "credit_card",
        "credit_card|debit_card|card|cc|visa|mastercard|amex|maestro|kreditkarte|carte|tarjeta|carta|pan",
        _DIGITS + "{11,18}",
        bare(check_digits.luhn),
    ),
    _cued("card_code", "cvv|cvv2|cvc|cvc2|csc|card_verification|security_code", r"\d{3,4}"),
    Rule(
        "iban",
        "sensitive",
        rf"(?<![A-Za-z0-9])(?:{_iban_pattern()})(?![A-Za-z0-9])",
        ("A",),
        check=bare(check_digits.iban),
    ),
)

_AMERICA = (
    _found("us_ssn", r"(?!000|666|9)\d{3}([- ])(?!00)\d\d\1(?!0000)\d{4}"),
    _cued(
        "us_ssn",
        "ssn|social_security|itin|tax_id|taxpayer|ein|tin",
        r"\d{3}[ -]?\d\d[ -]?\d{4}|\d\d-\d{7}",
    ),
    _cued("ca_sin", "sin|social_insurance", r"\d{3}[ -]?\d{3}[ -]?\d{3}", bare(check_digits.luhn)),
    _found("br_cpf", r"\d{3}\.\d{3}\.\d{3}-\d\d"),
    _cued("br_cpf", "cpf", r"\d{3}\.?\d{3}\.?\d{3}-?\d\d"),
    _found("br_cnpj", r"\d\d\.\d{3}\.\d{3}/\d{4}-\d\d"),
    _found("mx_curp", r"[A-Z]{4}\d{6}[HM][A-Z]{5}[A-Z0-9]\d", "A"),
    _found("cl_rut", r"\d{1,2}\.\d{3}\.\d{3}-[\dkK]"),
)

_EUROPE = (
    _found(
        "uk_nino",
        r"(?!BG|GB|NK|KN|TN|NT|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z](?: ?\d\d){3} ?[A-D]",
        "A",
    ),
    _cued("uk_nino", "nino|ni|national_insurance", r"[A-Z]{2}(?: ?\d\d){3} ?[A-D]"),
    _found("uk_nhs", r"\d{3}[ -]\d{3}[ -]\d{4}", check=weighted(11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1)),
    _cued("uk_nhs", "nhs", r"\d{3}[ -]?\d{3}[ -]?\d{4}"),
    _found(
        "fr_nir",
        r"[12378] ?\d\d ?\d\d ?\d[\dAB] ?\d{3} ?\d{3} ?\d\d",
        check=bare(check_digits.french_nir),
    ),
    _found("es_dni", r"\d{8}-?[A-HJ-NP-TV-Z]", check=bare(check_digits.spanish_dni)),
    _found("es_nie", r"[XYZ]-?\d{7}-?[A-HJ-NP-TV-Z]", "A", bare(check_digits.spanish_dni)),
    _found("de_tax_id", r"[1-9]\d ?\d{3} ?\d{3} ?\d{3}", check=bare(check_digits.german_tax_id)),
    _cued(
        "de_social",
        "rvnr|rentenversicherungsnummer|sozialversicherungsnummer|versicherungsnummer",
        r"\d\d ?\d{6} ?[A-Z] ?\d{3}",
    ),
    _found(
        "it_codice_fiscale",
        r"[A-Z]{6}[0-9LMNP-V]{2}[A-EHLMPRST][0-9LMNP-V]{2}[A-Z][0-9LMNP-V]{3}[A-Z]",
        "A",
        bare(check_digits.italian_code),
    ),
    _cued(
        "it_codice_fiscale",
        "cf|codice_fiscale",
        r"[A-Za-z]{6}\w{2}[A-Za-z]\w{2}[A-Za-z]\w{3}[A-Za-z]",
    ),
    _cued("nl_bsn", "bsn|burgerservicenummer", r"\d{8,9}|\d{4}\.\d\d\.\d{3}"),
    _cued("pl_pesel", "pesel", r"\d{11}"),
    _cued("pl_nip", "nip|regon", _DIGITS + "{8,13}"),
    _found("se_personnummer", r"(?:19|20)?\d{6}[-+]\d{4}", check=bare(check_digits.swedish_id)),
    _cued("se_personnummer", "personnummer|pnr|samordningsnummer", r"(?:19|20)?\d{6}[-+]?\d{4}"),
    _found("fi_hetu", r"[0-3]\d[01]\d{3}[-+A-FU-Y]\d{3}[0-9A-FHJ-NPR-Y]", check=dated(2, 0)),
    _found("ch_ahv", r"756([. ]?)\d{4}\1\d{4}\1\d\d", check=weighted(10, *(1, 3) * 6, 1)),
    _found("be_nrn", r"\d\d\.\d\d\.\d\d-\d{3}\.\d\d"),
    _cued(
        "national_id",
        "cpr|fødselsnummer|fodselsnummer|fnr|svnr|nif|cif|nie|dni|nir|nic|cnp|egn|oib|jmbg|amka|afm|pps|ppsn"
        "|rodné_číslo|rijksregisternummer|sécurité_sociale|securite_sociale|steuer_id|steuernummer"
        "|steueridentifikationsnummer|steuerliche_identifikationsnummer|idnr|tax_number|tax_no|vat_id|vat_number"
        "|steuer_identifikationsnummer|id_nr",
        rf"[A-Z]?{_DIGITS}{{6,14}}[ -]?[A-Z]{{0,2}}",
    ),
)

_ELSEWHERE = (
    _found("in_aadhaar", r"[2-9]\d{3}([ -])\d{4}\1\d{4}", check=bare(check_digits.verhoeff)),
    _cued("in_aadhaar", "aadhaar|aadhar|uidai|uid", r"\d{4}[ -]?\d{4}[ -]?\d{4}"),
    _found("in_pan", r"[A-Z]{3}[ABCFGHLJPT][A-Z]\d{4}[A-Z]", "A"),
    _found("tw_id", r"[A-Z][1289]\d{8}", "A", bare(check_digits.taiwanese_id)),
    _found("kr_rrn", r"\d{6}-[1-8]\d{6}", check=dated(2, 4)),
    _found(
        "cn_id",
        r"[1-9]\d{5}(?:19|20)\d\d(?:0[1-9]|1[0-2])[0-3]\d{4}[\dXx]",
        check=bare(check_digits.chinese_id),
    ),
    _found("sg_nric", r"[STFG]\d{7}[A-Z]", "A", bare(check_digits.singaporean_id)),
    _found("hk_id", r"[A-Z]{1,2}\d{6}\([0-9A]\)", "A"),
    _cued("au_tfn", "tfn|tax_file|medicare|abn", _DIGITS + "{7,10}"),
    _cued("za_id", "south african_id|rsa_id|sa_id", r"\d{13}"),
    _cued("tr_kimlik", "kimlik|tckn|tc_no", r"[1-9]\d{10}"),
    _cued(
        "passport",
        "passport|reisepass|passeport|pasaporte|passaporto|paszport|護照|护照|여권",
        r"[A-Z]{0,3}\d{5,9}[A-Z]?",
    ),
    _cued(
        "driving_licence",
        "driving_licence|driving_license|drivers_license|driver's_license|driver_license"
        "|führerschein|permis de conduire",
        r"(?=\D{0,5}\d(?:\D?\d){3})[A-Z0-9][A-Z0-9-]{5,19}",
    ),
    _cued(
        "national_id",
        "national_id|personal_id|identity|identification|citizen_id|government_id|resident_id|id_number|id_no"
        "|id_card|nid|身分證字號|身分證|身份證|身份证号码|身份证|주민등록번호|マイナンバー|rrn|ausweisnummer|personalausweis",
        rf"(?:[A-Z]{{1,4}}[ -]?)?{_DIGITS}{{5,17}}[ -]?[A-Z]{{0,2}}"
        r"|[A-Z]{5}\d{4}[A-Z]|[A-Z]{6}\w{9}[A-Z]",
    ),
)

SENSITIVE_RULES: tuple[Rule, ...] = (*_MONEY, *_AMERICA, *_EUROPE, *_ELSEWHERE)
