"""Examples in docstrings and pages are true."""

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ADAPTERS = ["kp_langchain", "kp_openai_agents", "kp_otel"]
SOURCES = [(ROOT, "kp_middleware"), *((ROOT / "adapters", name) for name in ADAPTERS)]
WITH_EXAMPLES = sorted(
    ".".join(file.relative_to(root).with_suffix("").parts)
    for root, package in SOURCES
    for file in (root / package).rglob("*.py")
    if re.search(r"^\s*>>> ", file.read_text("utf-8"), re.MULTILINE)
)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
    if ">>> " in block  # the others: docs/test_snippets.py
]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_a_module_run(name):
    module = import_module(name.removesuffix(".__init__"))

    results = doctest.testmod(module)

    assert results.attempted > 0
    assert results.failed == 0


@pytest.mark.parametrize("block", BLOCKS)
def test_the_examples_of_a_page_run(block):
    page = doctest.DocTestParser().get_doctest(block, {}, "block", None, 0)

    results = doctest.DocTestRunner().run(page)

    assert results.attempted > 0
    assert results.failed == 0
