"""Problems between a trace and its registry: stored as codes, shown in words.

Light: commands that read load this.
"""

from enum import StrEnum
from typing import Final, NamedTuple, Self

_LONGEST_DETAIL: Final = 200


class ProblemKind(StrEnum):
    """The kind of a problem, stored in the shared pacing file; `_WORDS` says what each means."""

    REFUSED = "refused"
    UNKNOWN_HOST = "unknown_host"
    UNREACHABLE = "unreachable"
    NO_CONNECTION = "no_connection"
    SILENCE = "silence"
    SLOW = "slow"
    BROKEN = "broken"
    UNTRUSTED = "untrusted"
    BAD_CERTIFICATE = "bad_certificate"
    CERTIFICATE_FILE = "certificate_file"
    NO_TLS = "no_tls"
    PROXY = "proxy"
    PROXY_REFUSES = "proxy_refuses"
    PROXY_UNUSABLE = "proxy_unusable"
    WRONG_PATH = "wrong_path"
    REDIRECT = "redirect"
    NO_REGISTRY = "no_registry"
    GATEWAY = "gateway"
    TROUBLE = "trouble"
    BARRED = "barred"
    LIMIT = "limit"
    UNHEARD = "unheard"
    DEAD_KEY = "dead_key"
    READ_ONLY_KEY = "read_only_key"
    FORBIDDEN = "forbidden"
    OTHER = "other"


_ASK: Final = "it is tried again by itself; if it lasts, ask whoever runs the registry"
_OR_IT: Final = "or try this one again with kp-middleware outbox retry --failed"
_OR_NO_PROXY: Final = "correct {first} or unset it, or name the registry's host in NO_PROXY"
_WORDS: Final = {
    ProblemKind.REFUSED: (
        "nothing listens there (connection refused)",
        "start the registry, or correct KP_REGISTRY_URL",
    ),
    ProblemKind.UNKNOWN_HOST: (
        "there is no host named {detail}",
        "correct KP_REGISTRY_URL, or see whether this machine has a network",
    ),
    ProblemKind.UNREACHABLE: (
        "no way leads there ({detail})",
        "see whether this machine has a network, and whether a firewall lets it out",
    ),
    ProblemKind.NO_CONNECTION: (
        "no connection within {detail} s",
        "see whether a firewall is in between, and whether KP_REGISTRY_URL is right",
    ),
    ProblemKind.SILENCE: ("no answer within {detail} s, though it took the connection", _ASK),
    ProblemKind.SLOW: ("the answer is too slow: it was not over within {detail} s", _ASK),
    ProblemKind.BROKEN: ("the connection broke off ({detail})", _ASK),
    ProblemKind.UNTRUSTED: (
        "its certificate is not trusted here ({detail})",
        "name the file of the authority that signed it in SSL_CERT_FILE",
    ),
    ProblemKind.BAD_CERTIFICATE: (
        "its certificate is not valid ({detail})",
        "correct KP_REGISTRY_URL or this machine's clock, or ask whoever runs it for another",
    ),
    ProblemKind.CERTIFICATE_FILE: (
        "{first} is {rest}, where no certificates can be read",
        "correct {first} or unset it",
    ),
    ProblemKind.NO_TLS: (
        "what listens there does not speak TLS ({detail})",
        "correct the host or the port in KP_REGISTRY_URL",
    ),
    ProblemKind.PROXY: ("the proxy that {first} names cannot be reached ({rest})", _OR_NO_PROXY),
    ProblemKind.PROXY_REFUSES: (
        "the proxy that {first} names does not let us through (it answered {rest})",
        _OR_NO_PROXY,
    ),
    ProblemKind.PROXY_UNUSABLE: (
        "what {first} says of a proxy cannot be used ({rest})",
        "correct {first} or unset it",
    ),
    ProblemKind.WRONG_PATH: (
        "there is a server, but no registry at this address (it answered {detail})",
        "correct KP_REGISTRY_URL: it ends before /v1/knowledge",
    ),
    ProblemKind.REDIRECT: (
        "it sends us elsewhere ({detail})",
        "set KP_REGISTRY_URL to where the registry is: an API key follows no redirect",
    ),
    ProblemKind.NO_REGISTRY: (
        "something else answers there ({detail}, with nothing that a registry says)",
        "correct KP_REGISTRY_URL, or see whether a login page or a proxy is in between",
    ),
    ProblemKind.GATEWAY: (
        "what stands before the registry does not get through to it (it answered {detail})",
        _ASK,
    ),
    ProblemKind.TROUBLE: ("the registry is in trouble itself (it answered {detail})", _ASK),
    ProblemKind.BARRED: (
        "something before the registry does not let us in (it answered {detail}, with a page)",
        "see whether a firewall or a login is in between, and ask whoever runs it",
    ),
    ProblemKind.LIMIT: (
        "the registry has asked for patience (429)",
        "there is nothing to do; let nothing else send with this key",
    ),
    ProblemKind.UNHEARD: (
        "two programs ended while they waited for its answer, and another 429 may cost the key",
        "there is nothing to do; kp.close(timeout_s=…) waits longer for an answer",
    ),
    ProblemKind.DEAD_KEY: (
        "the registry has refused the API key (unknown there, or revoked)",
        f"set KP_API_KEY to another (after three 429s in an hour, wait an hour first), {_OR_IT}",
    ),
    ProblemKind.READ_ONLY_KEY: (
        "the API key may only read",
        "register one with the scope write, and set KP_API_KEY to it",
    ),
    ProblemKind.FORBIDDEN: (
        "the registry takes nothing from this agent ({detail})",
        f"set KP_API_KEY to a key of an agent in good standing, {_OR_IT}",
    ),
    ProblemKind.OTHER: ("the registry was in trouble", "if it lasts: kp-middleware doctor"),
}


class Problem(NamedTuple):
    """One problem, in a form that can be kept in a column; what ``detail`` is, its kind says."""

    kind: ProblemKind
    detail: str = ""

    @classmethod
    def read(cls, kept: str) -> Self:
        """Read a stored problem; a kind that this version does not know becomes ``OTHER``."""
        kind, _, detail = kept.partition(" ")
        try:
            return cls(ProblemKind(kind), detail)
        except ValueError:
            return cls(ProblemKind.OTHER)

    @property
    def kept(self) -> str:
        """The problem in its stored form: one short line."""
        letters = (letter if letter.isprintable() else " " for letter in self.detail)
        return f"{self.kind} {' '.join(''.join(letters).split())}"[:_LONGEST_DETAIL].rstrip()

    @property
    def what(self) -> str:
        """The problem in words."""
        return self._filled(_WORDS[self.kind][0])

    @property
    def remedy(self) -> str:
        """The remedy in words."""
        return self._filled(_WORDS[self.kind][1])

    def _filled(self, words: str) -> str:
        first, _, rest = self.detail.partition(" ")
        named = {"detail": self.detail, "first": first, "rest": rest}
        return words.format_map(named)

    def __str__(self) -> str:
        return f"{self.what}; {self.remedy}"
