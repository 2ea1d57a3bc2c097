"""Writes the lines of `perdure explain` about tool calls: what people were asked, who has answered,
what has allowed a call, how it ended, and what is known of it since."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from perdure.cli.printing import clean, short_line, when
from perdure.domain.journal.events import (
    AssistantSaid,
    ToolFinished,
    ToolStarted,
)
from perdure.domain.journal.question_events import (
    AnswerAwaited,
    AnswerReceived,
    EffectMarked,
    WaitEnded,
    WorkDelegated,
    WorkReturned,
)
from perdure.domain.journal.records import EffectView, QuestionView
from perdure.domain.outcomes import CallEnding, QuestionKind

CallEvent = (
    ToolStarted
    | ToolFinished
    | AnswerAwaited
    | AnswerReceived
    | WorkDelegated
    | WorkReturned
    | WaitEnded
    | EffectMarked
)
_STATES = {
    "unknown": "nobody knows whether it has happened; /effects says so",
    "happened": "it has happened",
    "not_happened": "it has not happened",
}


def line(head: str, rest: str, *, style: str = "bold") -> Text:
    """Return a line of the tree: what it is about, and in short what there is to say of it."""
    return Text(clean(head), style).append(f"  {short_line(rest, length=200)}", "not bold dim")


class CallLines:
    """Knows the questions and the calls of unknown effect of one turn. It learns the names of calls
    as they are said."""

    def __init__(self, questions: Sequence[QuestionView], effects: Sequence[EffectView]) -> None:
        self._questions = {each.id: each for each in questions}
        self._effects = {each.call: each for each in effects}
        self._names: dict[str, str] = {}

    def learn(self, said: AssistantSaid) -> None:
        """Remember the names of the calls in a message."""
        self._names.update({call.id: call.name for call in said.calls})

    def of(self, event: CallEvent) -> Iterator[Text]:
        """Yield the lines about an event."""
        match event:
            case ToolStarted():
                name = self._names.get(event.call, "")
                why = f", allowed by {event.why}" if event.why else ""
                yield line(f"call {name} started", f"{event.call}{why}", style="cyan")
            case ToolFinished():
                yield from self._finished(event)
            case AnswerAwaited():
                yield self._asked(event)
            case AnswerReceived():
                yield self._answered(event)
            case WorkDelegated() | WorkReturned():
                yield _given(event)
            case WaitEnded():
                yield line("queued again", "it has everything that it waited for")
            case EffectMarked():
                known = _STATES["happened" if event.has_happened else "not_happened"]
                yield line("the model was told", f"of call {event.tool} {event.call}: {known}")

    def _finished(self, event: ToolFinished) -> Iterator[Text]:
        """Yield how a call ended. What is known of an unknown one since comes after it."""
        is_unknown = event.ending is CallEnding.UNKNOWN
        head = f"call {self._names.get(event.call, '')} {event.ending}"
        style = "yellow" if is_unknown else "cyan"
        yield line(head, f"{event.call} {event.result}", style=style)
        effect = self._effects.get(event.call)
        if not is_unknown or effect is None:
            return
        by = f", says {effect.marked_by or 'somebody'}" if effect.marked_at is not None else ""
        at = f" at {when(effect.marked_at)}" if effect.marked_at is not None else ""
        yield line(f"effect {effect.state.replace('_', ' ')}", f"{_STATES[effect.state]}{by}{at}")
        if effect.late_result:
            yield line("late result", effect.late_result, style="cyan")

    def _asked(self, event: AnswerAwaited) -> Text:
        what = "may I call" if event.kind is QuestionKind.APPROVAL else "asked by"
        until = f", open until {when(event.deadline)}" if event.deadline else ""
        asked = f"{what} {event.tool} {event.arguments}{until}"
        return line(f"question {event.question} asked", asked, style="magenta")

    def _answered(self, event: AnswerReceived) -> Text:
        """Return how a question ended: who has answered, with the scope, or why nobody has."""
        view = self._questions.get(event.question)
        if event.by is None:
            ended = f"nobody has answered: {event.reason}"
            return line(f"question {event.question} closed", ended, style="red")
        who = (view.answered_by if view else "") or event.by
        scope = f", for {event.scope}" if event.scope else ""
        covers = f": {view.grants}" if view and view.grants and event.scope != "call" else ""
        return line(
            f"question {event.question} {view.state if view else 'answered'}",
            f"{event.answer} by {who}{scope}{covers if event.scope else ''}",
            style="magenta",
        )


def _given(event: WorkDelegated | WorkReturned) -> Text:
    """Return the line about work that a call has given to another agent."""
    if isinstance(event, WorkReturned):
        ended = f"nobody waits for it any more: {event.reason}" if event.reason else "it is over"
        return line(f"errand {event.errand}", ended, style="cyan")
    until = f", at the latest {when(event.deadline)}" if event.deadline else ""
    why = f", allowed by {event.why}" if event.why else ""
    told = f"{event.errand} for {event.call}{until}{why}"
    return line(f"work for {event.agent}", told, style="cyan")
