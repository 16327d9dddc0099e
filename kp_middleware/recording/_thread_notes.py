"""Notes of a run that resumes an earlier one of its thread, or waits for a later one."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kp_middleware.runs import Awaited


@dataclass(slots=True)
class ThreadNotes:
    """An adapter's notes of a recorder's part in its thread; see `ThreadPart`.

    Attributes:
        agent: The agent's own name, or None.
        follows: True if the run resumes a paused one.
        overheard: True if its objective was stated before it resumed, and not by its own input.
        answers: The ids of the questions that its input answers.
        awaits: The reason why it waits at its end, or None.
        questions: The ids of the questions that it asked at its end.
        repeats_calls: True if steps may repeat those of an earlier part, with the same call ids.
        heard: The input whose decision is noted already, as it passes through several spans.
        owed: The tool calls without a result at its end: the tools' names by call id.
    """

    agent: str | None = None
    follows: bool = False
    overheard: bool = False
    answers: tuple[str, ...] = ()
    awaits: Awaited | None = None
    questions: tuple[str, ...] = ()
    owed: Mapping[str, str] = field(default_factory=dict)
    repeats_calls: bool = False
    heard: object = None

    def wait(self, awaits: Awaited, *, questions: tuple[str, ...], owed: Mapping[str, str]) -> None:
        """Pause the run, which may resume later."""
        self.awaits, self.questions, self.owed = awaits, questions, owed

    def go_on(self, answers: tuple[str, ...] = ()) -> Mapping[str, str]:
        """Resume a run that paused, in this recorder or in an earlier one.

        Returns:
            The tool calls without a result, if they are in this recorder.
        """
        if self.awaits is None:
            self.follows, self.answers = True, answers
            return {}
        owed = self.owed
        self.awaits, self.questions, self.owed = None, (), {}
        return owed
