"""Whose certificates are believed: what the usual variables name, on loopback as well."""

import os
import re
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from kp_middleware.errors import RegistryUnavailableError
from kp_middleware.problems import Problem, ProblemKind

_FILES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_HASHED: Final = re.compile(r"[0-9a-fA-F]{8}\.\d+")
_DIRECTORIES: Final = "SSL_CERT_DIR"


def named_trust() -> ssl.SSLContext | None:
    """Trust in what the environment names, and in nothing else; None where it names nothing.

    ``SSL_CERT_FILE``, or else ``REQUESTS_CA_BUNDLE``, or ``CURL_CA_BUNDLE``; and the folders of
    ``SSL_CERT_DIR``.

    Raises:
        RegistryUnavailableError: If one cannot be read.
    """
    named = [*_named()]
    if not named:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for variable, path in named:
        try:
            _believe(context, Path(path))
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            problem = Problem(ProblemKind.CERTIFICATE_FILE, f"{variable} {path}")
            raise RegistryUnavailableError(str(problem), problem=problem) from error
    return context


def _named() -> Iterator[tuple[str, str]]:
    file = next((name for name in _FILES if os.environ.get(name)), None)
    if file is not None:
        yield file, os.environ[file]
    for path in filter(None, os.environ.get(_DIRECTORIES, "").split(os.pathsep)):
        yield _DIRECTORIES, path


def _believe(context: ssl.SSLContext, path: Path) -> None:
    if path.is_dir():
        _believe_folder(context, path)
    else:
        context.load_verify_locations(cafile=path)


def _believe_folder(context: ssl.SSLContext, folder: Path) -> None:
    """OpenSSL finds only names that ``openssl rehash`` makes: where there are none, read all."""
    files = [*folder.iterdir()]
    if any(_HASHED.fullmatch(file.name) for file in files):
        context.load_verify_locations(capath=folder)
        return
    for file in filter(Path.is_file, files):
        with suppress(ssl.SSLError):  # a key, or a text
            context.load_verify_locations(cafile=file)
    if not context.cert_store_stats()["x509"]:
        raise ValueError("no certificate is in it")
