"""Records what a person did with a conversation in their list: seen, pinned, put away or hidden.

Nothing of this is in the journal, because it changes nothing of what was said. A new message brings
a conversation back that was put away or hidden (`recency.touch_conversation`).
"""

from typing import Final

from perdure.domain.ids import ConversationId
from perdure.ports.records.shelves import Shelving
from perdure.store.statement import Op, run

# Pins a conversation; what is pinned already keeps its instant, as below.
_PIN: Final = "UPDATE conversations SET pinned_at = COALESCE(pinned_at, $1) WHERE id = $2"
# Unpins a conversation.
_UNPIN: Final = "UPDATE conversations SET pinned_at = NULL WHERE id = $1"
# Puts a conversation away.
_ARCHIVE: Final = "UPDATE conversations SET archived_at = COALESCE(archived_at, $1) WHERE id = $2"
# Brings back a conversation that was put away.
_UNARCHIVE: Final = "UPDATE conversations SET archived_at = NULL WHERE id = $1"
# Hides a conversation.
_HIDE: Final = "UPDATE conversations SET hidden_at = COALESCE(hidden_at, $1) WHERE id = $2"
# Shows a hidden conversation again.
_UNHIDE: Final = "UPDATE conversations SET hidden_at = NULL WHERE id = $1"
# Records that everything in a conversation was seen. Two windows may say so in any order.
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
