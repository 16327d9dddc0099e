"""A model hub on loopback, with one repository: what huggingface_hub asks for, and no more."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

REPOSITORY = "Qdrant/all-MiniLM-L6-v2-onnx"
REVISION = "5f1b8cd78bc4fb444dd171e59b18f3a3af89a079"


class LoopbackHub(ThreadingHTTPServer):
    """Serves the files of a folder; if held, ``model.onnx`` only after ``/release``."""

    def __init__(self, folder: Path, *, held: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.folder = folder
        self.released = threading.Event()
        if not held:
            self.released.set()

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serving(folder: Path, *, held: bool = False) -> Iterator[LoopbackHub]:
    """A hub, for as long as the block lasts."""
    with LoopbackHub(folder, held=held) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        yield hub
        hub.released.set()
        hub.shutdown()


class _Request(BaseHTTPRequestHandler):
    server: LoopbackHub

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == "/release":
            self.server.released.set()
            self._answer(b"", etag="released")
        elif path == f"/api/models/{REPOSITORY}":
            files = [{"rfilename": file.name} for file in self.server.folder.iterdir()]
            self._answer_json({"id": REPOSITORY, "sha": REVISION, "siblings": files})
        elif path.startswith(f"/{REPOSITORY}/resolve/main/"):
            self._answer_file(self.server.folder / Path(path).name)
        else:
            self.send_error(404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing: the test's own output is enough."""

    def _answer_json(self, value: object) -> None:
        self._answer(json.dumps(value).encode(), etag="json")

    def _answer_file(self, file: Path) -> None:
        if file.name == "model.onnx" and self.command == "GET":
            self.server.released.wait()
        self._answer(file.read_bytes(), etag=_object_id(file))

    def _answer(self, body: bytes, *, etag: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{etag}"')
        self.send_header("X-Repo-Commit", REVISION)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _object_id(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()
