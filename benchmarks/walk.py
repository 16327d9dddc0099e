"""Count the functions and files of ours that one recorded run passes, threads included.

    python benchmarks/walk.py
    python benchmarks/walk.py --files

One LangChain run of two model turns with one tool call between them, and one decorated function
with one tool: recorded, redacted, scored and stored. The thread that scores counts too.
"""

import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

import kp_langchain
import kp_middleware
from kp_middleware import KnowledgePulse
from kp_middleware.testing import StandInEmbedder

OURS: Final = tuple(str(Path(package.__file__).parent) for package in (kp_middleware, kp_langchain))


class Walk(NamedTuple):
    """The functions that a run passed, with their calls, by file."""

    calls: Counter[tuple[str, str, int]]

    @property
    def files(self) -> Counter[str]:
        """Number of functions in each file."""
        return Counter(path for path, *_ in self.calls)


@contextmanager
def walked() -> Iterator[Walk]:
    """Count what is called while the block lasts, in threads that start in it as well."""
    walk = Walk(Counter())

    def count_call(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if (
            event == "call"
            and code.co_filename.startswith(OURS)
            and "testing" not in code.co_filename
        ) and not code.co_name.startswith("<"):  # comprehensions, modules
            walk.calls[code.co_filename, code.co_qualname, code.co_firstlineno] += 1

    threading.setprofile(count_call)
    sys.setprofile(count_call)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def langchain_run(kp: KnowledgePulse) -> Callable[[], object]:
    """Return an agent that calls one tool."""
    from langchain.agents import create_agent
    from langchain_core.language_models import FakeMessagesListChatModel
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.tools import tool

    from kp_langchain import KPCallbackHandler

    class Scripted(FakeMessagesListChatModel):  # a provider's model, which is not ours
        def bind_tools(self, tools: object, **_: object) -> "Scripted":  # noqa: ARG002
            return self

    @tool
    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    call = {"name": "double", "args": {"number": 3}, "id": "1"}
    script = [AIMessage("", tool_calls=[call]), AIMessage("It is 6.")]
    agent = create_agent(Scripted(responses=script), [double])
    config = {"callbacks": [KPCallbackHandler(kp)]}
    return lambda: agent.invoke({"messages": [HumanMessage("What is twice 3?")]}, config=config)


def decorated_run(kp: KnowledgePulse) -> Callable[[], object]:
    """Return a function that calls one tool."""

    @kp.tool
    def double(number: int) -> int:
        return 2 * number

    @kp.capture
    def answer(question: str) -> str:
        return f"{question} It is {double(3)}."

    return lambda: answer("What is twice 3?")


def walk_of(make: Callable[[KnowledgePulse], Callable[[], object]]) -> Walk:
    """Count the second run of a pipeline: the first loads modules and opens the file."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(2):
            db = Path(folder) / "kp.db"
            with KnowledgePulse(db=db, embedder=StandInEmbedder()) as kp:
                run = make(kp)
                if number == 0:
                    run()
                    kp.flush(60)
                    continue
                with walked() as walk:
                    run()
                    kp.flush(60)
    return walk


def main() -> None:
    """Print the numbers; with ``--files`` what each file has of them."""
    for name, make in (
        ("langchain, one tool", langchain_run),
        ("decorated, one tool", decorated_run),
    ):
        walk = walk_of(make)
        functions, files, calls = len(walk.calls), len(walk.files), walk.calls.total()
        print(f"{name}: {functions} functions in {files} files, {calls} calls")
        if "--files" in sys.argv:
            for path, count in walk.files.most_common():
                print(f"  {count:4} {path.partition('/kp_')[2]}")
            for (path, function, _), count in sorted(walk.calls.items()):
                print(f"  {count:5} {Path(path).name} {function}")


if __name__ == "__main__":
    main()
