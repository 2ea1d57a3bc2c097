"""Keeps what is remembered about people.

Every change names the principal, so that nobody can change another person's memories. If a memory
is changed or erased, stored request texts that contain it are deleted in the same transaction.
"""

from typing import Final, NamedTuple

from perdure.domain.errors import Conflict, NotFound, Rejected
from perdure.domain.ids import ConversationId, PrincipalId
from perdure.domain.people.memory import COUNT_MAX, Memory, MemoryId, memory_line, same
from perdure.store.operations import texts
from perdure.store.statement import Op, exists, many, one, run

# Locks a person's row before a memory is added, so that two transactions at once cannot exceed the
# limit.
_LOCK: Final = "SELECT id FROM principals WHERE id = $1 FOR NO KEY UPDATE"
# Reads what is remembered about a person, oldest first.
_ALL: Final = """
    SELECT id, text, conversation_id, created_at, changed_at FROM memories
    WHERE principal_id = $1 ORDER BY created_at, id"""
# Reads what is kept for a conversation, whoever said it, oldest first.
_OF_CONVERSATION: Final = """
    SELECT id, text, conversation_id, created_at, changed_at FROM memories
    WHERE conversation_id = $1 ORDER BY created_at, id"""
# Finds whose memory has this id.
_OWNER: Final = "SELECT principal_id FROM memories WHERE id = $1"
# Stores a memory.
_ADD: Final = """
    INSERT INTO memories (id, principal_id, conversation_id, text, created_at, changed_at)
    VALUES ($1, $2, $3, $4, $5, $5)"""
# Changes a person's memory that is visible from a conversation.
_EDIT: Final = """
    UPDATE memories SET text = $1, changed_at = $2
    WHERE id = $3 AND principal_id = $4 AND (conversation_id IS NULL OR conversation_id = $5)
    RETURNING id, text, conversation_id, created_at, changed_at"""
# Reads the words of a memory that is about to change, and locks it.
_BEFORE: Final = "SELECT text FROM memories WHERE id = $1 FOR UPDATE"
# Deletes a person's memory that is visible from a conversation.
_FORGET: Final = """
    DELETE FROM memories
    WHERE id = $1 AND principal_id = $2 AND (conversation_id IS NULL OR conversation_id = $3)
    RETURNING text, conversation_id"""
# Deletes everything remembered about a person.
_FORGET_ALL: Final = """
    DELETE FROM memories WHERE principal_id = $1 RETURNING text, conversation_id"""


class MemoryOwner(NamedTuple):
    """Says whose memories are meant, and from which conversation they are seen. `is_shared` means
    that others read there: then only memories kept for this conversation may be told, whoever said
    them."""

    principal: PrincipalId
    conversation: ConversationId
    is_shared: bool = False


class _KnownMemories(NamedTuple):
    """Holds the memories a person sees from a conversation, and how many are kept for other
    conversations."""

    here: list[Memory]
    elsewhere: int


class _Kept(NamedTuple):
    """Holds a memory. `conversation` is the one it is kept for, or None if it is for all."""

    id: MemoryId
    text: str
    conversation: ConversationId | None
    created_at: int
    changed_at: int


class _Gone(NamedTuple):
    """Holds the words of a deleted memory, and the conversation it was kept for."""

    text: str
    conversation: ConversationId | None


def known(person: MemoryOwner) -> Op[_KnownMemories]:
    """Return what is remembered about a person, as they see it from their conversation."""
    found = yield from _all_of(person.principal)
    shown = (person.conversation,) if person.is_shared else (None, person.conversation)
    here = [_memory(each) for each in found if each.conversation in shown]
    return _KnownMemories(here, len(found) - len(here))


def _all_of(principal: PrincipalId) -> Op[list[_Kept]]:
    """Return everything remembered about a person, oldest first."""
    return (yield from many(_Kept, _ALL, principal))


def recall(person: MemoryOwner) -> Op[list[Memory]]:
    """Return what the model may be told in a person's conversation."""
    if person.is_shared:
        found = yield from many(_Kept, _OF_CONVERSATION, person.conversation)
        return [_memory(each) for each in found]
    return (yield from known(person)).here


def add(
    text: str, *, key: str, principal: PrincipalId, conversation: ConversationId | None, at: int
) -> Op[Memory]:
    """Remember one line about a person. Repeating it, or the key, returns the memory that is there.
    Raises `Rejected` at the limit and `Conflict` if the key belongs to another memory."""
    line = memory_line(text)
    if not (yield from exists(_LOCK, principal)):
        raise NotFound(f"there is no principal {principal}")
    found = yield from _all_of(principal)
    for each in found:
        if each.id == key or (each.conversation in (None, conversation) and same(each.text, line)):
            return _memory(each)
    if len(found) >= COUNT_MAX:
        raise Rejected(
            f"{COUNT_MAX} things are remembered about this person, which is the limit; "
            "forget one first, or correct one",
            code="memory_full",
        )
    if (yield from exists(_OWNER, key)):
        raise Conflict(f"{key} names a memory already; use another key", code="id_conflict")
    # Even if the clock was set back the newest memory stays last, so the numbers that people see do
    # not change.
    created_at = max(at, found[-1].created_at + 1) if found else at
    yield from run(_ADD, key, principal, conversation, line, created_at)
    return _memory(_Kept(MemoryId(key), line, conversation, created_at, created_at))


def edit(memory: MemoryId, text: str, person: MemoryOwner, *, at: int) -> Op[Memory]:
    """Change a memory that its person sees from their conversation. Raises `NotFound`."""
    line = memory_line(text)
    before = yield from one(str, _BEFORE, memory)
    changed = yield from one(_Kept, _EDIT, line, at, memory, person.principal, person.conversation)
    if before is None or changed is None:
        raise _missing(memory)
    yield from texts.drop_line(before, (person.principal, changed.conversation))
    return _memory(changed)


def forget(memory: MemoryId, person: MemoryOwner) -> Op[None]:
    """Delete a memory that its person sees from their conversation. Raises `NotFound`."""
    gone = yield from one(_Gone, _FORGET, memory, person.principal, person.conversation)
    if gone is None:
        raise _missing(memory)
    yield from texts.drop_line(gone.text, (person.principal, gone.conversation))


def forget_all(principal: PrincipalId) -> Op[int]:
    """Delete everything remembered about a person. Returns the number of memories."""
    gone = yield from many(_Gone, _FORGET_ALL, principal)
    for each in gone:
        yield from texts.drop_line(each.text, (principal, each.conversation))
    return len(gone)


def _missing(memory: MemoryId) -> NotFound:
    """Return the error for a memory that does not exist, or is not the person's."""
    return NotFound(f"there is no memory {memory}; list them to see what there is")


def _memory(found: _Kept) -> Memory:
    """Return the memory that a row holds."""
    return Memory(
        id=found.id,
        text=found.text,
        is_here=found.conversation is not None,
        created_at=found.created_at,
        changed_at=found.changed_at,
    )
