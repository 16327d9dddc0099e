"""What bash needs beyond what click gives it: values with blanks, and words with colons."""

import os
import re
from collections.abc import Iterable
from typing import ClassVar, Final

from click.shell_completion import BashComplete, CompletionItem

_NEEDS_ESCAPE: Final = re.compile(r"([^\w@%+=:,./-])")
_QUOTES: Final = ("'", '"')
_SOURCE: Final = """\
%(complete_func)s() {
    local IFS=$'\\n' type value
    COMPREPLY=()
    while IFS=',' read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD \\
        %(complete_var)s=bash_complete "$1")
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class BashWords(BashComplete):
    """Bash as click speaks to it, for values that are not one word of letters."""

    source_template: ClassVar[str] = _SOURCE
    _before = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """What was typed: bash divides words at colons, and replaces what follows the last one."""
        args, last = super().get_completion_args()
        *args, whole = glued([*args, last])
        self._before = "" if whole == last else whole[: whole.rindex(":") + 1]
        return args, whole

    def format_completion(self, item: CompletionItem) -> str:
        """One line, with the value as it has to be typed."""
        value = str(item.value).removeprefix(self._before)
        if item.type == "plain" and not _is_quoted():
            value = _NEEDS_ESCAPE.sub(r"\\\1", value)
        return f"{item.type},{value}"


def glued(words: Iterable[str]) -> list[str]:
    """Words that colons divide, in one again.

    >>> glued(["show", "kp", ":", "trace", ":", "1339", "-v"])
    ['show', 'kp:trace:1339', '-v']
    """
    whole: list[str] = []
    for word in words:
        if whole and (word == ":" or whole[-1].endswith(":")):
            whole[-1] += word
        else:
            whole.append(word)
    return whole


def _is_quoted() -> bool:
    words, at = os.environ["COMP_WORDS"].split("\n"), int(os.environ["COMP_CWORD"])
    return at < len(words) and words[at].startswith(_QUOTES)
