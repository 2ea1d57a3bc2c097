"""Remembers what later news of a turn names by its id alone: the calls and questions that are
open."""

from collections.abc import Iterable

from perdure.domain.journal.events import AnyEvent, AssistantSaid, ToolFinished
from perdure.domain.journal.question_events import AnswerAwaited, AnswerReceived

# The events that bring an id which later ones name.
OpeningEvent = AssistantSaid | AnswerAwaited


class OpenCalls:
    """Holds the names of the tools of open calls, and the open questions."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._questions: dict[str, AnswerAwaited] = {}

    def learn(self, opened: Iterable[OpeningEvent]) -> None:
        """Take over what was opened before the watcher came."""
        for event in opened:
            self.take(event)

    def take(self, event: AnyEvent) -> None:
        """Remember what an event opens, and forget what it closes."""
        match event:
            case AssistantSaid(calls=calls):
                self._names.update({call.id: call.name for call in calls})
            case ToolFinished(call=call):
                self._names.pop(call, None)
            case AnswerAwaited(question=question):
                self._questions[question] = event
            case AnswerReceived(question=question):
                self._questions.pop(question, None)
            case _:
                pass

    def name_of(self, call: str) -> str:
        """Return the name of the tool of an open call, or an empty string."""
        return self._names.get(call, "")

    def asked(self, question: str) -> AnswerAwaited | None:
        """Return an open question, or None."""
        return self._questions.get(question)
