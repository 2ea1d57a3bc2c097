"""What is remembered about people. Every statement names the principal: that is what keeps one
person's memories from another's eyes."""

from typing import Final, NamedTuple

from perdure.domain.errors import Conflict, NotFound, Rejected
from perdure.domain.ids import ConversationId, PrincipalId
from perdure.domain.memory import COUNT_MAX, Memory, MemoryId, one_line, same
from perdure.store.statement import Op, Row, row, rows, run

# Who adds holds the person's row: two at once cannot both be the last that fits.
_LOCK: Final = "SELECT id FROM principals WHERE id = $1 FOR NO KEY UPDATE"
_ALL: Final = """
    SELECT id, text, conversation_id, created_at, changed_at FROM memories
    WHERE principal_id = $1 ORDER BY created_at, id"""
_OF_CONVERSATION: Final = """
    SELECT id, text, conversation_id, created_at, changed_at FROM memories
    WHERE conversation_id = $1 ORDER BY created_at, id"""
_OWNER: Final = "SELECT principal_id FROM memories WHERE id = $1"
_ADD: Final = """
    INSERT INTO memories (id, principal_id, conversation_id, text, created_at, changed_at)
    VALUES ($1, $2, $3, $4, $5, $5)"""
_EDIT: Final = """
    UPDATE memories SET text = $1, changed_at = $2
    WHERE id = $3 AND principal_id = $4 AND (conversation_id IS NULL OR conversation_id = $5)
    RETURNING id, text, conversation_id, created_at, changed_at"""
_FORGET: Final = """
    DELETE FROM memories
    WHERE id = $1 AND principal_id = $2 AND (conversation_id IS NULL OR conversation_id = $3)
    RETURNING id"""
_FORGET_ALL: Final = "DELETE FROM memories WHERE principal_id = $1 RETURNING id"


class Person(NamedTuple):
    """Whose memories, and the conversation they are looked at from. `is_shared`: others read along
    there, so that only what was kept for this conversation may be told, whoever said it."""

    principal: PrincipalId
    conversation: ConversationId
    is_shared: bool = False


class Known(NamedTuple):
    """What a person sees from a conversation, and how many more are kept for other ones."""

    here: list[Memory]
    elsewhere: int


def known(person: Person) -> Op[Known]:
    found = yield from rows(_ALL, person.principal)
    shown = (person.conversation,) if person.is_shared else (None, person.conversation)
    here = [_memory(each) for each in found if each[2] in shown]
    return Known(here, len(found) - len(here))


def recall(person: Person) -> Op[list[Memory]]:
    if person.is_shared:
        found = yield from rows(_OF_CONVERSATION, person.conversation)
        return [_memory(each) for each in found]
    return (yield from known(person)).here


def add(
    text: str, *, key: str, principal: PrincipalId, conversation: ConversationId | None, at: int
) -> Op[Memory]:
    line = one_line(text)
    if (yield from row(_LOCK, principal)) is None:
        raise NotFound(f"there is no principal {principal}")
    found = yield from rows(_ALL, principal)
    for each in found:
        if each[0] == key or (each[2] in (None, conversation) and same(each[1], line)):
            return _memory(each)
    if len(found) >= COUNT_MAX:
        raise Rejected(
            f"{COUNT_MAX} things are remembered about this person, which is the limit; "
            "forget one first, or correct one",
            code="memory_full",
        )
    if (yield from row(_OWNER, key)) is not None:
        raise Conflict(f"{key} names a memory already; use another key", code="id_conflict")
    # A clock may be set back; the newest is last even so, and the numbers people see stay.
    created_at = max(at, found[-1][3] + 1) if found else at
    yield from run(_ADD, key, principal, conversation, line, created_at)
    return _memory((key, line, conversation, created_at, created_at))


def edit(memory: MemoryId, text: str, person: Person, *, at: int) -> Op[Memory]:
    line = one_line(text)
    changed = yield from row(_EDIT, line, at, memory, person.principal, person.conversation)
    if changed is None:
        raise _missing(memory)
    return _memory(changed)


def forget(memory: MemoryId, person: Person) -> Op[None]:
    gone = yield from row(_FORGET, memory, person.principal, person.conversation)
    if gone is None:
        raise _missing(memory)


def forget_all(principal: PrincipalId) -> Op[int]:
    return len((yield from rows(_FORGET_ALL, principal)))


def _missing(memory: MemoryId) -> NotFound:
    return NotFound(f"there is no memory {memory}; list them to see what there is")


def _memory(found: Row) -> Memory:
    memory, text, conversation, created_at, changed_at = found
    return Memory(
        id=memory,
        text=text,
        is_here=conversation is not None,
        created_at=created_at,
        changed_at=changed_at,
    )
