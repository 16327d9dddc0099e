"""Measure redaction: harmless text that it destroys, secrets that it finds, and its cost.

    make bench
    .venv/bin/python benchmarks/redaction.py --all      # every file, not a sample of 2 MB a kind

A rule that finds more is worth it only if real text stays: run this before and after a change, and
compare. `destroyed` counts characters in a million; `touched` counts texts of harmless kinds. Where
published samples of secrets and a labeled set lie beside the repository, it also says how much of
them goes.
"""

import gzip
import random
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from kp_middleware.privacy import redact_jsonable, redact_text

SAMPLE_SIZE: Final = 2_000_000
FILE_SIZE: Final = 60_000
SHARED: Final = Path(__file__).parents[2] / "shared"
sys.path += [str(SHARED / "bench"), str(Path(__file__).parents[1] / "tests" / "privacy")]
LIBRARY: Final = Path(sysconfig.get_path("stdlib"))
PACKAGES: Final = Path(sysconfig.get_path("purelib"))
MANUALS: Final = Path("/usr/share/man")
HOSTILE: Final = (
    *("password=", '"', "'", "a=", " ", "key: ", "_", "=", ":", "`", "a_key=", "password: ", "("),
    *("password is ", "token ", 'login("a","', "| password |\n", "insert into a (pass) values (",
      "echo a ", "<<< ", "pass,a\n", "A" * 64 + "\n", "password={", "-u a:", "://a:", "\\"),
    *("api_key_", "b_token_", "password==", '"password"', "password=a,", "pw=a;b=", "${pw:-"),
    *("\\npassword=a1 ", "token is `", "api key is `", "setcookie=a,", "sshpass:a@", "auth_", "://"),
)  # fmt: skip
PROSE: Final = (
    "The agent looked at the list of flights, asked for the cheapest one on Friday, and wrote the "
    "answer into a table with a price, a date and a place. It was not sure about the second one. "
)
TOKENS: Final = ("Yes", "No", " the", "Paris", "ization", ".", "\n", "42", "\u2581Hello", "tion")


def main() -> None:
    """Print the tables."""
    console = Console(width=120)
    console.print(_destroyed(None if "--all" in sys.argv else SAMPLE_SIZE))
    console.print(_touched())
    console.print(_costs())
    if (SHARED / "bench" / "pii_set.py").exists():
        console.print(_labelled())
    _found()


def _destroyed(limit: int | None) -> Table:
    table = Table("real text", "MB", "private", "aggregated", "", box=None)
    table.columns[4].header = "destroyed, in a million characters"
    for name, files in (
        ("Python's library", (*LIBRARY.glob("*.py"), *LIBRARY.glob("*/*.py"))),
        ("packages", PACKAGES.glob("**/*.py")),
        ("documents of packages", _documents()),
        ("manual pages", MANUALS.glob("man*/*.gz")),
    ):
        texts = [*_sampled(files, limit)]
        size = sum(map(len, texts))
        if size:
            rates = [_rate(texts, level) for level in ("private", "aggregated")]
            table.add_row(name, f"{size / 1e6:.1f}", *(f"{rate:.0f}" for rate in rates))
    return table


def _documents() -> Iterator[Path]:
    for kind in ("md", "rst", "txt", "METADATA"):
        yield from PACKAGES.glob("**/METADATA" if kind == "METADATA" else f"**/*.{kind}")


def _sampled(files: Iterable[Path], limit: int | None) -> Iterator[str]:
    """Yield the beginnings of files from all over a folder, the same ones each time."""
    found = sorted(file for file in files if file.is_file())
    random.Random(7).shuffle(found)
    size = 0
    for file in found:
        if limit is not None and size >= limit:
            return
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        text = content.decode(errors="replace")[:FILE_SIZE]
        size += len(text)
        yield text


def _rate(texts: list[str], level: str) -> float:
    gone = sum(found.length for text in texts for found in redact_text(text, level=level).found)
    return 1e6 * gone / sum(map(len, texts))


def _touched() -> Table:
    table = Table("harmless, at private", "texts", "touched", box=None)
    for name, values in HARMLESS.items():
        touched = sum(bool(redact_jsonable(value, level="private").found) for value in values)
        table.add_row(name, str(len(values)), str(touched))
    return table


def _paging(letters: random.Random) -> Iterator[object]:
    for name in ("next_page_token", "nextToken", "pageToken", "NextContinuationToken", "state",
                 "cache_key", "public_key", "continuation_token", "cursor"):  # fmt: skip
        for size in (12, 24, 44):
            value = "".join(letters.choices("ABCDEFabcdefghijklmnop0123456789", k=size))
            yield from ({name: value}, f"{name}={value}", f'log: {{"{name}": "{value}"}}')


def _probabilities() -> Iterator[object]:
    for token in TOKENS:
        yield {"token": token, "logprob": -0.31, "bytes": [89, 101], "top_logprobs": []}
        yield f"content=[ChatCompletionTokenLogprob(token={token!r}, bytes=[89], logprob=-0.31)]"


def _annotations() -> Iterator[object]:
    for name in ("api_key", "token", "password", "secret", "client_secret"):
        for kind in ("MyKeyType", "str", "ApiKey | None", "Optional[SecretStr]", "types.Key"):
            yield f"def connect(host: str, {name}: {kind}) -> None:"
            yield f"    {name}: {kind}\n"
        yield f"{name}: API key for the service"


def _rows(letters: random.Random) -> Iterator[object]:
    for _ in range(1000):
        yield " ".join(str(letters.randint(0, 9999)) for _ in range(8))


HARMLESS: Final = {
    "paging tokens, states, public keys": [*_paging(random.Random(1))],
    "log probabilities": [*_probabilities()],
    "type annotations and descriptions": [*_annotations()],
    "rows of eight small integers": [*_rows(random.Random(2))],
}


def _costs() -> Table:
    table = Table("cost, in CPU", "ms", box=None)
    prose = (PROSE * 20)[:2048]
    unseen = (f"{number} {prose}" for number in range(51))  # a text that was clean is not searched
    _cpu_s(next(unseen))
    table.add_row("2 kB of prose", f"{1000 * min(map(_cpu_s, unseen)):.2f}")
    worst = sorted(((_cpu_s((unit * 65536)[:65536]), unit) for unit in HOSTILE), reverse=True)
    for took_s, unit in worst[:4]:
        table.add_row(f"64 KiB of {unit[:20]!r}", f"{1000 * took_s:.0f}")
    return table


def _cpu_s(text: str) -> float:
    began = time.process_time()
    redact_text(text, level="aggregated")
    return time.process_time() - began


def _labelled() -> Table:
    from labelled import Tally
    from pii_set import build

    tally = Tally(build(seed=20251120))
    table = Table("labeled set, at aggregated", "", box=None)
    for category in tally.cores:
        table.add_row(f"{category}: recall", f"{tally.recall(category):.3f}")
    table.add_row("precision", f"{tally.precision:.3f}")
    table.add_row("near misses touched", str(len(tally.kept_but_hit)))
    return table


def _found() -> None:
    """Return the figures of scripts that need files beside the repository."""
    samples = SHARED / "conformance" / "secret_samples.json.gz"
    for script, arguments in (
        ("secrets_recall.py", [str(samples), "private"]),
        ("secrets_monte_carlo.py", ["200"]),
    ):
        if (SHARED / "bench" / script).exists():
            subprocess.run([sys.executable, str(SHARED / "bench" / script), *arguments], check=True)


if __name__ == "__main__":
    main()
