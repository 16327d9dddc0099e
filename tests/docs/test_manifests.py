"""What the manifests of docs/kubernetes.md set are settings of ours."""

import re

import pages
import pytest
import yaml

from kp_middleware.settings import Settings

[PAGE] = [page for page in pages.PAGES if page.name == "kubernetes.md"]


@pytest.mark.parametrize("block", [*pages.blocks(PAGE, "yaml")], ids=lambda block: str(block.line))
def test_a_manifest_is_yaml_and_sets_what_there_is(block):
    assert all(yaml.safe_load_all(block.code))
    named = {name.removeprefix("KP_").lower() for name in re.findall(r"\bKP_[A-Z_]+", block.code)}
    assert named
    assert named <= Settings.model_fields.keys()
