"""The name of the rules changes with whatever decides what goes."""

from kp_middleware.privacy import REDACTOR, Policy


def test_the_rules_of_a_file_are_a_part_of_the_name(tmp_path, without_network):
    file = tmp_path / "rules.toml"
    line = f"print(Policy(engines=('gitleaks:{file}',)).redactor)"
    names = [without_network(line)]

    for content in ("one", "two"):
        file.write_text(content)
        names.append(without_network(line))

    assert len({*names}) == 3
    assert all(name.startswith(f"{REDACTOR}+") for name in names)


def test_the_name_is_that_of_the_rules_in_use(tmp_path):
    file = tmp_path / "rules.toml"
    policy = Policy(engines=(f"gitleaks:{file}",))
    file.write_text("one")
    name = policy.redactor

    file.write_text("two")

    assert policy.redactor == name


def test_a_package_that_is_not_installed_is_no_trouble_to_the_name():
    names = {Policy(engines=(name,)).redactor for name in ("presidio:none", "kingfisher", "other")}

    assert len(names) == 3


def test_regions_name_their_engine():
    policy = Policy(phone_regions=("DE",), engines=("kingfisher", "phonenumbers"))

    assert policy.engine_names == ("phonenumbers", "kingfisher")
