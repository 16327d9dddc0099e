"""Notes of a run that goes on with an earlier one of its thread, or waits there for a later one."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kp_middleware.runs import Awaited


@dataclass(slots=True)
class ThreadNotes:
    """What an adapter says of one recorder's place in its thread; see `ThreadPart`.

    Attributes:
        agent: The agent's own name, or None where it has none.
        follows: Whether the run goes on with what waits.
        overheard: Whether what it is for was said before it went on, and not by its own input.
        answers: Ids of the questions that its input answers.
        awaits: What it waits for at its end.
        questions: Ids of what it asked then.
        repeats_calls: Whether its steps may be those of an earlier part, known by their calls' ids.
        heard: The input whose decision is noted already: it goes through several runs.
        owed: The tool calls that had no result then: the names of the tools, by the calls' ids.
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
        """The run stops here, and may go on later."""
        self.awaits, self.questions, self.owed = awaits, questions, owed

    def go_on(self, answers: tuple[str, ...] = ()) -> Mapping[str, str]:
        """The run goes on: with what waits elsewhere, or after it waited in this very recorder.

        Returns:
            The tool calls without a result, where they are in this recorder.
        """
        if self.awaits is None:
            self.follows, self.answers = True, answers
            return {}
        owed = self.owed
        self.awaits, self.questions, self.owed = None, (), {}
        return owed
