"""Secrets redacted from waiting runs, to redact them from the runs that follow as well."""

from collections.abc import Collection
from typing import Final

from kp_middleware.privacy import KnownSecrets
from kp_middleware.runs import RecordedRun

_MOST: Final = 10_000


class OpenSecrets:
    """The secrets of threads in which a run waits, in memory alone: they are never written.

    Beyond 10,000 in all, the thread that was quiet for longest loses its own.
    """

    def __init__(self) -> None:
        self._by_thread: dict[str, KnownSecrets] = {}

    def __bool__(self) -> bool:
        return bool(self._by_thread)

    def of(self, run: RecordedRun) -> KnownSecrets:
        """Return the secrets known from the earlier runs of a run's thread."""
        known = None if run.part is None else self._by_thread.get(run.part.thread)
        return KnownSecrets() if known is None else known

    def keep(self, run: RecordedRun, known: KnownSecrets) -> None:
        """Remember secrets for the next run in this run's thread."""
        if run.part is None or not known:
            return
        self._by_thread.pop(run.part.thread, None)
        self._by_thread[run.part.thread] = known
        while sum(map(len, self._by_thread.values())) > _MOST:
            del self._by_thread[next(iter(self._by_thread))]

    def forget_all_but(self, threads: Collection[str]) -> None:
        """Forget the secrets of all threads but these, given by their fingerprints."""
        self._by_thread = {
            thread: known for thread, known in self._by_thread.items() if thread in threads
        }
