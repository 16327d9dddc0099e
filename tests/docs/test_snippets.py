"""Python snippets of the pages run from top to bottom; commands exist."""

import re
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import click
import pages
import pytest
import stand_ins
import yaml

from kp_langchain import disable
from kp_middleware import KnowledgePulse, Settings
from kp_middleware.cli import main
from kp_middleware.database import connect
from kp_middleware.locations import database_file
from kp_middleware.storage import History

TRACES = {
    "README.md": 2,
    "docs/confidence.md": 0,
    "docs/gates.md": 1,
    "docs/index.md": 1,
    "docs/inspecting.md": 0,
    "docs/kubernetes.md": 1,
    "docs/langchain.md": 7,
    "docs/langgraph.md": 2,
    "docs/openai-agents.md": 0,
    "docs/opentelemetry.md": 0,
    "docs/privacy.md": 0,
    "docs/processes.md": 2,
    "docs/python.md": 7,
    "docs/registry.md": 1,
    "docs/remembering.md": 2,
    "docs/sql.md": 0,
    "docs/troubleshooting.md": 0,
}
"""How many a page's snippets leave in the file: what they show is not only free of errors."""


def snippets(page):
    return [block for block in pages.blocks(page, "python") if ">>> " not in block.code]


WITH_SNIPPETS = [page for page in pages.PAGES if snippets(page)]
COMMANDS = {
    page: [
        line.strip()
        for block in pages.blocks(page, "console")
        for line in block.code.splitlines()
        if re.search(r"\bkp-m(iddleware|w)\b", line)
    ]
    for page in pages.PAGES
}


@pytest.fixture
def names(monkeypatch):
    """The names that the snippets need, without a language model or an embedder."""
    monkeypatch.setenv("KP_EMBEDDER", "none")
    monkeypatch.setitem(sys.modules, "langchain_openai", stand_ins.provider())
    with KnowledgePulse() as kp:
        yield {
            "__name__": "__main__",
            "ThreadPoolExecutor": ThreadPoolExecutor,
            "agent": stand_ins.agent(),
            "inputs": {"messages": [("user", "How high is Mont Blanc?")]},
            "kp": kp,
        }
    disable()


@pytest.fixture
def run(names):
    """Runs the snippets of a page in their order; gives how many traces they leave."""

    def run_page(page):
        for block in snippets(page):
            lines = "\n" * (block.line - 1) + block.code
            exec(compile(lines, page, "exec"), names)
        [one.close() for one in (names["kp"], KnowledgePulse.default())]
        with closing(connect(database_file())) as connection:
            return History(connection).counts().recorded

    return run_page


@pytest.mark.parametrize("page", WITH_SNIPPETS, ids=pages.name)
def test_the_snippets_of_a_page_run_from_its_top_to_its_end(page, run):
    traces = run(page)

    assert traces == TRACES[pages.name(page)]


def test_the_table_of_traces_names_no_page_that_is_not_there():
    assert TRACES.keys() == {pages.name(page) for page in WITH_SNIPPETS}


@pytest.mark.parametrize("page", [page for page in COMMANDS if COMMANDS[page]], ids=pages.name)
def test_the_commands_of_a_page_exist_with_their_options(page, tmp_path, monkeypatch):
    (tmp_path / "build.log").touch()  # one that they read
    monkeypatch.chdir(tmp_path)

    for line in COMMANDS[page]:
        parsed = [parse(main, "kp-middleware", words) for words in commands_of(line)]

        assert len(parsed) == len(re.findall(r"(^\$ |\| |\(|&& )kp-m", line)), line


def commands_of(line):
    """The words that follow each ``kp-middleware`` in a line of a shell."""
    text = re.sub(r'"?\$\((kp-m[^)]*)\)"?', r" ; \1 ; ", line.removeprefix("$ "))
    divided = shlex.shlex(text, posix=True, punctuation_chars=";&|<>")
    divided.whitespace_split = True
    words = []
    for word in [*divided, ";"]:
        if set(word) <= set(";&|<>"):
            if words[:1] in (["kp-middleware"], ["kp-mw"]):
                yield words[1:]
            words = []
        else:
            words.append(word)


def parse(command, name, words, parent=None):
    """As click does before it runs a command; raises where an option or a value is not known."""
    with command.make_context(name, [*words], parent=parent) as context:
        if not isinstance(command, click.Group):
            return name
        rest = [*context._protected_args, *context.args]
        inner, found, rest = command.resolve_command(context, rest)
        return parse(found, inner, rest, context)


def test_a_command_that_is_none_is_noticed():
    with pytest.raises(click.UsageError):
        parse(main, "kp-middleware", ["list", "--nearby"])


def test_the_manifests_are_yaml_and_set_what_there_is():
    for block in pages.blocks(pages.ROOT / "docs" / "kubernetes.md", "yaml"):
        named = {
            name.removeprefix("KP_").lower() for name in re.findall(r"\bKP_[A-Z_]+", block.code)
        }

        assert all(yaml.safe_load_all(block.code))
        assert named
        assert named <= Settings.model_fields.keys()
