"""Handles `/link`: one conversation in several places.

A code is given out in one place and used in another. From then on the second place continues the
conversation of the first: what is said there goes into that journal, under that person's name, and
is answered where it was said. The person in the second place had access there before; the code only
proves that both places belong to the same person. A link never leads to another link: the row of
the conversation that is continued is locked before either is changed.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from perdure.domain.address import GROUP, HTTP, Address
from perdure.domain.ids import ConversationId, SessionId
from perdure.domain.inbound.commands import Given
from perdure.domain.journal.events import Recorded
from perdure.domain.sayings.saying import worded
from perdure.store.operations.addresses import address_of
from perdure.store.operations.commands.command_result import CommandResult
from perdure.store.operations.delivery.notices import notice
from perdure.store.operations.people import wrong_codes
from perdure.store.operations.people.access import code_digest
from perdure.store.operations.sessions import moves
from perdure.store.operations.turn_context import TurnContext
from perdure.store.statement import Op, many, one, run

OFF: Final = "off"
# Characters of a code.
CODE_LENGTH: Final = 8
# How long a code can be used.
CODE_MS: Final = 600_000
# Wrong codes of a person within an hour, after which no code is accepted.
WRONG_MAX: Final = 5
# Codes are typed by hand. No code contains these letters, so they are read as the digits they look
# like.
_MISREAD: Final = str.maketrans("OILoil", "011011")

# The columns from which `_end_of` makes a value.
_COLUMNS = "id, session_id, linked_id, label, adapter, account, place, thread, person"
# Locks one end of a link.
_END = f"""
    SELECT {_COLUMNS} FROM conversations WHERE id = $1 FOR NO KEY UPDATE"""
# Locks the conversations that are linked to one.
_LINKED_HERE = f"""
    SELECT {_COLUMNS} FROM conversations WHERE linked_id = $1 ORDER BY id FOR NO KEY UPDATE"""
# Deletes the code that was given out in a conversation, and all that are too old.
_VOID = "DELETE FROM links WHERE conversation_id = $1 OR expires_at <= $2"
# Stores a code that was given out.
_OFFER = """
    INSERT INTO links (digest, conversation_id, principal_id, expires_at)
    VALUES ($1, $2, $3, $4)"""
# Locks a code, and finds where it was given out.
_OFFERED = """
    SELECT conversation_id FROM links WHERE digest = $1 AND expires_at > $2 FOR UPDATE"""
# Deletes a code that was used.
_USE = "DELETE FROM links WHERE digest = $1"
# Links a conversation to another. The ids of the events that its watchers see must grow, whichever
# journal they come from: while it is linked, the generation of the other conversation is added to
# its own.
_LINK = "UPDATE conversations SET linked_id = $1, generation = generation + 1 WHERE id = $2"
# Ends a link. The generation continues from the sum of both.
_UNLINK = """
    UPDATE conversations SET linked_id = NULL, generation = generation + 1
        + (SELECT t.generation FROM conversations t WHERE t.id = conversations.linked_id)
    WHERE id = $1"""

IN_A_GROUP: Final = worded(
    "Only private places can be linked: in a group others would speak for you."
)
WRONG: Final = worded(
    "No such code, or its ten minutes are over. /link in the other place gives a new one."
)
TOO_OFTEN: Final = worded("Too many wrong codes. Try again in an hour.")
OWN_CODE: Final = worded(
    "That code was given out here. Say it in the place that is to go on with this."
)
NOT_LINKED: Final = worded("Nothing is linked here. /link gives a code for that.")


class End(NamedTuple):
    """Holds one end of a link; its row is locked."""

    conversation: ConversationId
    session: SessionId
    linked: ConversationId | None
    label: str
    address: Address

    @property
    def called(self) -> str:
        """Return the name of this place, in words."""
        if self.address.adapter == HTTP:
            return f"{self.address.place} (over HTTP)"
        return f"{self.address.name} ({self.label})" if self.label else self.address.name


def link(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Carry out `/link`: give out a code, use one, or end a link."""
    if context.update.place_kind == GROUP:
        return CommandResult(IN_A_GROUP)
    if given.arguments.lower() == OFF:
        return (yield from _end(context))
    if context.place.via is not None:
        there = yield from _locked(context.conversation)
        called = there.called
        return CommandResult(
            worded("What is said here continues {place}. /link off ends that.", place=called)
        )
    if not given.arguments:
        return (yield from _offer(context))
    return (yield from _use(context, given.arguments))


def redacted(given: Given) -> str:
    """Return what the journal keeps of the arguments: no code, right or wrong."""
    return given.arguments if given.arguments.lower() in ("", OFF) else "(code)"


def _offer(context: TurnContext) -> Op[CommandResult]:
    """Give out a new code, which replaces the last one."""
    stamp = context.stamp
    # The end of an id is random.
    code = stamp.mint("lnk")[-CODE_LENGTH:].upper()
    yield from run(_VOID, context.conversation, stamp.at)
    yield from run(
        _OFFER,
        code_digest(code), context.conversation, context.update.principal, stamp.at + CODE_MS,
    )  # fmt: skip
    linked = yield from _linked_here(context.conversation)
    told = worded(
        "The code is {code}, for ten minutes and one use. Say /link {code} in another private "
        "place of yours: what is said there then continues this conversation.",
        code=code,
    )
    if not linked:
        return CommandResult(told)
    known = worded("{places}: linked to here already. /link off ends that.", places=_names(linked))
    return CommandResult(worded("{first}\n{second}", first=told, second=known))


def _use(context: TurnContext, typed: str) -> Op[CommandResult]:
    """Link this place by a code, unless the code is wrong or too many were."""
    stamp, who = context.stamp, context.update.principal
    if (yield from wrong_codes.are_too_many("link", who, WRONG_MAX, at=stamp.at)):
        return CommandResult(TOO_OFTEN)
    code = code_digest(typed.translate(_MISREAD))
    offered = yield from one(ConversationId, _OFFERED, code, stamp.at)
    if offered is None:
        yield from wrong_codes.note("link", who, stamp)
        return CommandResult(WRONG)
    there = yield from _locked(offered)
    if there.linked is not None:
        there = yield from _locked(there.linked)
    if there.conversation == context.conversation:
        return CommandResult(OWN_CODE)
    linked = yield from _linked_here(context.conversation)
    if linked:
        return CommandResult(
            worded(
                "{places}: linked to here, so this cannot be linked on. /link here and say that "
                "code there instead, or /link off first.",
                places=_names(linked),
            )
        )
    yield from run(_USE, code)
    return (yield from _joined(context, there))


def _joined(context: TurnContext, there: End) -> Op[CommandResult]:
    """Link this place to the conversation of the code, and tell the people there."""
    here = yield from _locked(context.conversation)
    yield from moves.linked(here.conversation, there.conversation)
    yield from run(_LINK, there.conversation, here.conversation)
    told = yield from notice(
        there.session,
        None,
        worded(
            "{place} is linked to this conversation now, with a code that was given out here. What "
            "is said there is part of it. /link off ends that, there or here.",
            place=here.called,
        ),
        context.stamp,
    )
    reply = worded(
        "Linked. What is said here continues {place} from now on. /link off ends that.",
        place=there.called,
    )
    return CommandResult(
        reply,
        told,
        session=there.session,
        conversation=there.conversation,
        moved=((here.conversation, there.session),),
    )


def _end(context: TurnContext) -> Op[CommandResult]:
    """End a link, from either end. The linked place has its own conversation again."""
    if context.place.via is not None:
        return (yield from _leave(context))
    ended = yield from _linked_here(context.conversation)
    if not ended:
        return CommandResult(NOT_LINKED)
    here = yield from _locked(context.conversation)
    text = worded(
        "{place} has ended the link. This place has its own conversation again.", place=here.called
    )
    recorded: list[Recorded] = []
    for end in ended:
        yield from _unlink(end)
        recorded += yield from notice(end.session, None, text, context.stamp)
    moved = tuple((end.conversation, end.session) for end in ended)
    return CommandResult(
        worded("No longer linked to here: {places}.", places=_names(ended)), recorded, moved=moved
    )


def _leave(context: TurnContext) -> Op[CommandResult]:
    """End the link of this place, and tell the conversation it was linked to."""
    assert context.place.via is not None
    here = yield from _locked(context.place.via)
    yield from _unlink(here)
    text = worded("{place} is no longer linked to this conversation.", place=here.called)
    told = yield from notice(context.session, None, text, context.stamp)
    return CommandResult(
        worded("This place has its own conversation again."),
        told,
        session=here.session,
        conversation=here.conversation,
        moved=((here.conversation, here.session),),
    )


def _unlink(end: End) -> Op[None]:
    """Record the move, and end the link. In this order: the move is computed from the link."""
    yield from moves.unlinked(end.conversation)
    yield from run(_UNLINK, end.conversation)


def _locked(conversation: ConversationId) -> Op[End]:
    """Lock and return one end of a link."""
    end = yield from one(_end_of, _END, conversation)
    assert end is not None
    return end


def _linked_here(conversation: ConversationId) -> Op[list[End]]:
    """Lock and return the ends of all links to this conversation."""
    return (yield from many(_end_of, _LINKED_HERE, conversation))


def _end_of(
    conversation: ConversationId,
    session: SessionId,
    linked: ConversationId | None,
    label: str,
    *address: str,
) -> End:
    """Return the end that these columns hold."""
    return End(conversation, session, linked, label, address_of(*address))


def _names(ends: Sequence[End]) -> str:
    """Return the names of these places."""
    return ", ".join(end.called for end in ends)
