"""Check digits: what tells an identifier from any other number. All take the bare characters."""

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
_DIHEDRAL = (
    *("0123456789", "1234067895", "2340178956", "3401289567", "4012395678"),
    *("5987604321", "6598710432", "7659821043", "8765932104", "9876543210"),
)
_PERMUTED = (
    *("0123456789", "1576283094", "5803796142", "8916043527"),
    *("9453126870", "4286573901", "2793806415", "7046913258"),
)

IBAN_LENGTHS: dict[int, str] = {
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
"""Countries by the length of their account numbers."""


def luhn(digits: str) -> bool:
    """Cards, and some national numbers."""
    doubled = (int(digit) * (1 + index % 2) for index, digit in enumerate(reversed(digits)))
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


def card(digits: str) -> bool:
    """A card number of a known issuer, of a length that issuer uses."""
    issued = any(
        first <= int(digits[:size]) <= last and len(digits) in lengths
        for size, first, last, lengths in _CARD_LENGTHS
    )
    return issued and luhn(digits)


def iban(text: str) -> bool:
    """ISO 13616: modulo 97, letters counted from A = 10."""
    turned = text[4:] + text[:4]
    return int("".join(str(int(character, 36)) for character in turned)) % 97 == 1


def verhoeff(digits: str) -> bool:
    """India's Aadhaar."""
    state = 0
    for index, digit in enumerate(reversed(digits)):
        state = int(_DIHEDRAL[state][int(_PERMUTED[index % 8][int(digit)])])
    return state == 0


def weighted(digits: str, weights: tuple[int, ...], modulus: int) -> bool:
    """The weighted sum of all digits, the check digit among them, is divisible."""
    total = sum(int(digit) * weight for digit, weight in zip(digits, weights, strict=True))
    return total % modulus == 0


def german_tax_id(digits: str) -> bool:
    """ISO 7064 modulo 11,10; among the first ten, one digit comes twice or three times."""
    repeated = sorted(count for count in map(digits[:10].count, "0123456789") if count > 1)
    if repeated not in ([2], [3]):
        return False
    product = 10
    for digit in digits[:10]:
        product = 2 * ((int(digit) + product) % 10 or 10) % 11
    return (11 - product) % 10 == int(digits[10])


def spanish_dni(text: str) -> bool:
    """The last letter follows from the number; X, Y and Z in front count as 0, 1 and 2."""
    number = int(text[:-1].translate(str.maketrans("XYZ", "012")))
    return "TRWAGMYFPDXBNJZSQVHLCKE"[number % 23] == text[-1]


def french_nir(text: str) -> bool:
    """Two check digits, 97 minus the remainder; Corsica's 2A and 2B count as 19 and 18."""
    number = int(text[:-2].replace("2A", "19").replace("2B", "18"))
    return 97 - number % 97 == int(text[-2:])


def italian_code(text: str) -> bool:
    """The last letter of the codice fiscale: odd places by a table, even places by value."""
    values = [int(character, 36) - (0 if character.isdigit() else 10) for character in text[:15]]
    odd = sum(ord("BAFHJNPRTVCESULDGIMOQKWZYX"[value]) - ord("A") for value in values[::2])
    return chr(ord("A") + (odd + sum(values[1::2])) % 26) == text[15]


def taiwanese_id(text: str) -> bool:
    """The letter counts as a two-digit number, whose order has historical reasons."""
    number = 10 + "ABCDEFGHJKLMNPQRSTUVXYWZIO".index(text[0])
    weights = (1, 9, 8, 7, 6, 5, 4, 3, 2, 1, 1)
    return weighted(f"{number}{text[1:]}", weights, 10)


def chinese_id(text: str) -> bool:
    """ISO 7064 modulo 11,2; the last character may be X."""
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    total = sum(int(digit) * weight for digit, weight in zip(text[:17], weights, strict=True))
    return "10X98765432"[total % 11] == text[17].upper()


def singaporean_id(text: str) -> bool:
    """The last letter follows from the digits and the first letter."""
    weights = (2, 7, 6, 5, 4, 3, 2)
    total = sum(int(digit) * weight for digit, weight in zip(text[1:8], weights, strict=True))
    shifted = total + (4 if text[0] in "TG" else 0)
    return ("JZIHGFEDCBA" if text[0] in "ST" else "XWUTRQPNMLK")[shifted % 11] == text[8]


def dated(text: str, month: int, day: int) -> bool:
    """Two digits at each of these places are a month and a day."""
    return 1 <= int(text[month : month + 2]) <= 12 and 1 <= int(text[day : day + 2]) <= 31


def swedish_id(digits: str) -> bool:
    """A date and a Luhn digit; the day of a coordination number is 60 higher."""
    digits = digits[-10:]
    return dated(f"{digits[2:4]}{int(digits[4:6]) % 60:02}", 0, 2) and luhn(digits)
