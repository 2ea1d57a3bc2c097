"""Records what a person did with a conversation in their list: seen, pinned, put away or hidden.

Nothing of this is in the journal, because it changes nothing of what was said. A new message brings
a conversation back that was put away or hidden (`recency.touch_conversation`).
"""

from typing import Final

from perdure.domain.ids import ConversationId
from perdure.ports.records.shelves import Shelving
from perdure.store.statement import Op, run

# Each records one thing. What is so already stays as it is, with its instant.
_PIN: Final = """
    UPDATE conversations SET pinned_at = COALESCE(pinned_at, $1) WHERE id = $2"""
_UNPIN: Final = "UPDATE conversations SET pinned_at = NULL WHERE id = $1"
_ARCHIVE: Final = """
    UPDATE conversations SET archived_at = COALESCE(archived_at, $1) WHERE id = $2"""
_UNARCHIVE: Final = "UPDATE conversations SET archived_at = NULL WHERE id = $1"
_HIDE: Final = """
    UPDATE conversations SET hidden_at = COALESCE(hidden_at, $1) WHERE id = $2"""
_UNHIDE: Final = "UPDATE conversations SET hidden_at = NULL WHERE id = $1"
# Two windows may say so in any order.
_SEE: Final = "UPDATE conversations SET seen_at = $1 WHERE id = $2 AND seen_at < $1"


def shelve(conversation: ConversationId, wish: Shelving, *, at: int) -> Op[None]:
    """Record what a person did with a conversation."""
    for wanted, on, off in (
        (wish.pinned, _PIN, _UNPIN),
        (wish.archived, _ARCHIVE, _UNARCHIVE),
        (wish.hidden, _HIDE, _UNHIDE),
    ):
        if wanted:
            yield from run(on, at, conversation)
        elif wanted is not None:
            yield from run(off, conversation)
    if wish.is_seen:
        yield from run(_SEE, at, conversation)
