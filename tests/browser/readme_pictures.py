"""The pictures of the README and the docs: the overview and a run in both themes, and `show`.

make pictures
"""

import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import chromium
import serving
from busy_month import make_busy_month
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

_COLUMNS, _LINES = 100, 24  # so wide is what is printed where there is no terminal
_FONTS = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)  # they are on somebody else's server


def make_demo(path):
    """A file with the runs of the demo."""
    command = [sys.executable, "-m", "kp_middleware", "demo", "--into", str(path)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def draw(month, demo, environment, folder):
    """All, of these files, into this folder."""
    with ExitStack() as stack, TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = chromium.start(profile)
        stack.callback(browser.driver.quit)
        page = serving.serve(stack, environment, month)
        browser.enter(page)
        for name, address in {"overview": page.overview, "run": page.trace("@best")}.items():
            for scheme, end in {"light": "", "dark": "-dark"}.items():
                browser.open(address, scheme=scheme)
                browser.keep_picture(folder / f"{name}{end}.png", width=1280, height=800)
    (folder / "show.svg").write_text(_terminal(demo, environment), encoding="utf-8")


def _terminal(db, environment):
    command = [sys.executable, "-m", "kp_middleware", "--db", str(db), "show", "@best"]
    coloured = {**environment, "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    done = subprocess.run(command, env=coloured, stdout=subprocess.PIPE, text=True, check=True)
    lines = done.stdout.splitlines()
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=_COLUMNS, file=nowhere)
        console.print(Text.from_ansi("\n".join([*lines[:_LINES], "\u2026"])))
    title = "kp-middleware show @best"
    return console.export_svg(title=title, code_format=_FONTS.sub("", CONSOLE_SVG_FORMAT))


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        month, demo = Path(folder, "kp.db"), Path(folder, "demo.db")
        make_busy_month(month)
        make_demo(demo)
        draw(month, demo, {**os.environ}, Path(sys.argv[1]))
