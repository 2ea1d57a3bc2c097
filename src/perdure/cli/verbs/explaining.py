"""Implements `perdure explain`: prints the chain behind one id as a tree."""

from rich.text import Text
from rich.tree import Tree

from perdure.cli.agents.words import times_in_words
from perdure.cli.call_lines import CallEvent, CallLines, line
from perdure.cli.printing import lasting, print_json, when
from perdure.cli.tables import console
from perdure.cli.target import CommandTarget, answering
from perdure.cli.verbs.records import recorded
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    AttemptInterrupted,
    InterruptionAcknowledged,
    MediaFetched,
    MediaLost,
    MessageJoined,
    PromptExpanded,
    StickerDescribed,
    TurnQueued,
    TurnRequeued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.model.usage import Usage
from perdure.domain.journal.records import PartView, TurnView
from perdure.domain.turn.endings import Audience, reached
from perdure.web import wire
from perdure.web.endpoints import WANTED
from perdure.web.ops import records


async def explain(target: CommandTarget, *, any_id: str, with_request: bool = False) -> None:
    """Print the chain behind an id, or with `with_request` the last request to the model, as
    JSON."""
    async with answering(target) as answers:
        wanted = WANTED if with_request else None
        found = await answers.ask(records.explain, any_id, request=wanted)
    if with_request:
        print_json(found.request)
    elif target.is_json:
        print_json(found)
    else:
        console().print(_tree(found))


def _tree(found: wire.ExplanationOut) -> Tree:
    root = Tree(
        line(f"conversation {found.conversation}", found.turn.session if found.turn else "")
    )
    for update in found.updates:
        name = update.external_id.partition("\n")[0]
        root.add(line(f"update {name}", f"{update.adapter} {update.kind} {when(update.at)}"))
    if found.command:
        root.add(line(f"command /{found.command}", found.reply))
    if found.refused:
        root.add(line("refused", found.refused, style="red"))
    if found.turn is not None:
        _add_turn(root, found, found.turn)
    for part in found.parts:
        _add_part(root, part)
    return root


def _add_turn(root: Tree, found: wire.ExplanationOut, turn: TurnView) -> None:
    """Add a turn with its attempts. Each event is shown below the attempt in which it happened."""
    branch = root.add(line(f"turn {turn.id}", _ending(turn)))
    if found.left:
        branch.add(line(found.left.replace("_", " "), "it does not stand any more", style="yellow"))
    calls = CallLines(found.questions, found.effects)
    attempt = branch
    for each in found.events:
        event = recorded(turn.session, each).event
        if isinstance(event, TurnStarted):
            started = f"{when(each.at)} on {event.node}"
            attempt = branch.add(line(f"attempt {event.attempt}", started))
        elif isinstance(event, CallEvent):
            for words in calls.of(event):
                attempt.add(words)
        elif (fact := _fact(event, calls)) is not None:
            (branch if isinstance(event, TurnQueued | TurnSettled) else attempt).add(fact)
        if isinstance(event, TurnSettled):
            _add_end(branch, event)
    if found.partial is not None:
        attempt.add(line(f"shown so far {found.partial.message}", found.partial.text))


def _add_end(branch: Tree, event: TurnSettled) -> None:
    """Add what the answer of a turn took."""
    if times := times_in_words(event.timings):
        branch.add(line("time", times))
    if event.agent_state.mode:
        branch.add(line("mode", event.agent_state.mode))
    if event.agent_state.commands:
        branch.add(line("the agent's commands", ", ".join(event.agent_state.commands)))
    for told in reached(event, Audience.OPERATORS):
        branch.add(line("reached", told, style="yellow"))


def _ending(turn: TurnView) -> str:
    """Return how a turn ended, how long it waited and how long it took."""
    parts = [turn.outcome or turn.state, turn.reason]
    if turn.started_at is not None:
        parts.append(f"waited {lasting((turn.started_at - turn.queued_at) / 1000)}")
        if turn.settled_at is not None:
            parts.append(f"took {lasting((turn.settled_at - turn.started_at) / 1000)}")
    return ", ".join(part for part in parts if part)


def _fact(event: AnyEvent, calls: CallLines) -> Text | None:
    """Return the line for one event, or None. `calls` learns the names of this turn's calls."""
    match event:
        case TurnQueued(ordered_by=turn) if turn:
            told = f"ordered by {turn}: {event.text or event.answer}"
            return line(f"message {event.message}", told)
        case TurnQueued() | MessageJoined():
            return line(f"message {event.message}", event.text)
        case PromptExpanded():
            return line(f"prompt {event.name}", event.text)
        case AssistantSaid():
            calls.learn(event)
            mark = "said, cut short" if event.is_interrupted else "said"
            called = "".join(f" → {call.name} {call.arguments}" for call in event.calls)
            return line(f"{mark} {event.message}", event.text + called)
        case MediaFetched() | MediaLost() | StickerDescribed():
            return _file(event)
        case TurnSettled():
            return _settled(event)
        case AttemptInterrupted() | InterruptionAcknowledged() | TurnRequeued():
            return _interruption(event)
        case _:
            return None


def _file(event: MediaFetched | MediaLost | StickerDescribed) -> Text:
    file = f"{event.message} file {event.index + 1}"
    if isinstance(event, StickerDescribed):
        return line(f"{file} is a sticker", event.words or "that nobody has described in time")
    if isinstance(event, MediaLost):
        return line(f"{file} lost", event.reason, style="red")
    told = event.problem or event.text
    return line(f"{file} {event.media}", f"{event.name} {event.mime} {event.size} bytes {told}")


def _interruption(event: AttemptInterrupted | InterruptionAcknowledged | TurnRequeued) -> Text:
    match event:
        case AttemptInterrupted():
            asked = f", a {event.asked} was asked for" if event.asked else ""
            used = f", {_tokens(event.usage)}" if event.usage.model_calls else ""
            return line("interrupted", f"{event.reason}{asked}{used}", style="red")
        case InterruptionAcknowledged():
            return line("the model was told", f"of the interruption at {event.interruption}")
        case TurnRequeued():
            return line("queued again", f"after {event.reason}")


def _tokens(usage: Usage) -> str:
    return f"{usage.input_tokens} tokens in, {usage.output_tokens} out"


def _settled(event: TurnSettled) -> Text:
    tokens = _tokens(event.usage) if event.usage.model_calls else ""
    rest = ", ".join(part for part in (event.reason, event.detail, event.agent, tokens) if part)
    return line(event.outcome, rest, style="green" if event.outcome == "done" else "red")


def _add_part(root: Tree, part: PartView) -> None:
    text = f"{part.adapter} {part.state}, {part.attempts} tries"
    branch = root.add(line(f"part {part.id}", text))
    if part.receipt:
        branch.add(line("receipt", part.receipt, style="green"))
    if part.error:
        branch.add(line("error", part.error, style="red"))
