"""A library in numbers, for the page that puts ours beside those we learn from.

``python tests/docs/house.py SOURCE TESTS`` measures another one.
"""

import ast
import builtins
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median, quantiles

_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_NO_CODE = {getattr(tokenize, name) for name in ("NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER")}
_REPLACES = re.compile(r"\bpatch\(|\bpatch\.object\(|\w*Mock\(|mocker\.|monkeypatch\.setattr")


class File:
    """A module: its syntax, and how many of its lines are code and comments."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text("utf-8")
        self.tree = ast.parse(self.text)
        self.nodes = [*ast.walk(self.tree)]
        self.functions = [node for node in self.nodes if isinstance(node, _FUNCTION)]
        tokens = [*tokenize.generate_tokens(io.StringIO(self.text).readline)]
        self.comments = sum(token.type == tokenize.COMMENT for token in tokens)
        kept = [one for one in tokens if one.type not in {*_NO_CODE, tokenize.COMMENT}]
        lines = {line for one in kept for line in range(one.start[0], one.end[0] + 1)}
        self.code = len(lines) - sum(map(_docstring_lines, self.nodes))


def measured(source: list[Path], tests: Path) -> dict[str, float]:
    """The rows of the table for one library: those of packages, and of the folder of its tests."""
    files = [*_files(source)]
    tested = [*_files([tests])]
    functions = [function for file in files for function in file.functions]
    lengths = [_length(function) for function in functions]
    public = [one for one in functions if not one.name.startswith("_")]
    modules = [len(file.text.splitlines()) for file in files]
    cases = [
        _length(one) for file in tested for one in file.functions if one.name.startswith("test")
    ]
    named = [file for file in files if not file.path.stem.startswith("__")]
    errors = _errors(files)
    code, swallowing = sum(file.code for file in files), sum(map(_swallows, _nodes(files)))
    return {
        "modules": len(files),
        "lines of code": code,
        "lines of a module: median": median(modules),
        "lines of a module: nine in ten have at most": _of_nine_in_ten(modules),
        "lines of a module: most": max(modules),
        "functions": len(functions),
        "lines of a function: median": median(lengths),
        "lines of a function: nine in ten have at most": _of_nine_in_ten(lengths),
        "lines of a function: most": max(lengths),
        "functions of more than 25 lines, %": 100 * mean(length > 25 for length in lengths),
        "arguments of a function, mean": mean(map(_arguments, functions)),
        "functions of more than 5 arguments, %": 100
        * mean(_arguments(one) > 5 for one in functions),
        "public functions with a docstring, %": 100 * mean(map(_is_told, public)),
        "comments in 100 lines of code": 100 * sum(file.comments for file in files) / code,
        "modules in circles of imports, when they run": len(_in_circles(files, source)),
        "classes of errors": len(errors),
        "classes of errors that are roots": sum(
            not bases & errors.keys() for bases in errors.values()
        ),
        "`except Exception` without `raise`, in 10,000 lines": 10_000 * swallowing / code,
        "modules with a test file of their name, %": 100
        * mean(_has_a_test_of_its_name(one, tested) for one in named),
        "lines of tests for a line of code": sum(file.code for file in tested) / code,
        "tests": len(cases),
        "lines of a test, mean": mean(cases),
        "patches and mocks in 100 tests": 100
        * sum(len(_REPLACES.findall(file.text)) for file in tested)
        / len(cases),
    }


def _of_nine_in_ten(numbers: list[int]) -> float:
    return quantiles(numbers, n=10, method="inclusive")[-1]


def _files(folders: list[Path]) -> Iterator[File]:
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            if path.stat().st_size and path.name != "__pycache__":
                yield File(path)


def _nodes(files: list[File]) -> Iterator[ast.AST]:
    return (node for file in files for node in file.nodes)


def _docstring_lines(node: ast.AST) -> int:
    if not isinstance(node, (ast.Module, ast.ClassDef, *_FUNCTION)) or not _is_told(node):
        return 0
    return node.body[0].end_lineno - node.body[0].lineno + 1


def _is_told(node: ast.AST) -> bool:
    return ast.get_docstring(node, clean=False) is not None


def _length(function: ast.FunctionDef) -> int:
    """Its lines from ``def`` to the end, without the docstring."""
    return function.end_lineno - function.lineno + 1 - _docstring_lines(function)


def _arguments(function: ast.FunctionDef) -> int:
    given = function.args
    named = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    others = [one for one in (given.vararg, given.kwarg) if one]
    return len([name for name in named if name not in {"self", "cls"}]) + len(others)


def _swallows(node: ast.AST) -> bool:
    """Whether whatever is raised ends here."""
    if not isinstance(node, ast.ExceptHandler):
        return False
    is_broad = node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"}
    return is_broad and not any(isinstance(inner, ast.Raise) for inner in ast.walk(node))


def _has_a_test_of_its_name(file: File, tested: list[File]) -> bool:
    name = f"test_{file.path.stem.strip('_')}"
    return any(test.path.stem.startswith(name) for test in tested)


def _errors(files: list[File]) -> dict[str, set[str]]:
    """The classes of exceptions that are defined, with their bases."""
    classes = {
        node.name: {ast.unparse(base).split(".")[-1] for base in node.bases}
        for node in _nodes(files)
        if isinstance(node, ast.ClassDef)
    }
    known = {name for name, value in vars(builtins).items() if _is_exception(value)}
    while more := {name for name, bases in classes.items() if bases & known} - known:
        known |= more
    return {name: bases for name, bases in classes.items() if name in known}


def _is_exception(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _in_circles(files: list[File], source: list[Path]) -> list[str]:
    names = {_name(file, source): file for file in files}
    graph = {
        name: {*_imported(name, file, names)} & names.keys() - {name}
        for name, file in names.items()
    }
    return [name for name in graph if name in _reached(name, graph)]


def _name(file: File, source: list[Path]) -> str:
    [parent] = [folder.parent for folder in source if file.path.is_relative_to(folder)]
    return ".".join(file.path.relative_to(parent).with_suffix("").parts).removesuffix(".__init__")


def _imported(name: str, file: File, names: dict[str, File]) -> Iterator[str]:
    """The modules that a module imports when it runs, wherever it does."""
    typing = [
        n for n in file.nodes if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test)
    ]
    skipped = {id(inner) for block in typing for inner in ast.walk(block)}
    package = name.split(".") if file.path.stem == "__init__" else name.split(".")[:-1]
    for node in file.nodes:
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            asked = [f"{base}.{alias.name}" for alias in node.names]
            yield from (one if one in names else base for one in asked)


def _reached(start: str, graph: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    ahead = [*graph[start]]
    while ahead:
        if (name := ahead.pop()) not in reached:
            reached.add(name)
            ahead += graph[name]
    return reached


if __name__ == "__main__":
    for row, number in measured([Path(sys.argv[1])], Path(sys.argv[2])).items():
        print(f"{row:48} {number:,.1f}")
