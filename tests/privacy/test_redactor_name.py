"""The name of the rules changes with whatever decides what goes."""

import re

from kp_middleware.privacy import REDACTOR, Policy


def test_each_policy_has_a_name_of_its_own():
    rules = [{"deny": ("a",)}, {"deny": ("b",)}]
    engines = [{"engines": (name,)} for name in ("presidio:none", "kingfisher", "other")]

    names = {Policy(**given).redactor for given in (*rules, *engines)}

    assert re.fullmatch(r"kp-redactor/1\+[0-9a-f]{12}", REDACTOR)
    assert Policy().redactor == REDACTOR
    assert len(names) == 5
    assert all(name.startswith(f"{REDACTOR}+") for name in names)


def test_the_rules_of_a_file_are_named_as_they_are_in_use(tmp_path, alone):
    file = tmp_path / "rules.toml"
    policy = Policy(engines=(f"gitleaks:{file}",))
    file.write_text("one")
    name = policy.redactor

    file.write_text("two")

    assert policy.redactor == name
    assert alone(f"print({policy!r}.redactor)").strip() != name


def test_regions_name_their_engine():
    policy = Policy(phone_regions=("DE",), engines=("kingfisher", "phonenumbers"))

    assert policy.engine_names == ("phonenumbers", "kingfisher")
