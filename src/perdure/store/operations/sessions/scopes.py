"""Whose the words of a conversation are.

What is said in a shared place belongs to that conversation: it is found and read there, by whoever
may speak there, and nowhere else. Everything else belongs to one person, and is found from places
where nobody reads along. A scope is the id of either; operators look without one.
"""

from perdure.domain.address import is_shared
from perdure.domain.ids import ConversationId, PrincipalId
from perdure.store.operations.turn_context import TurnContext

SearchScope = PrincipalId | ConversationId

# Is true of a conversation `c` in which several people take part.
SHARED = "(c.kind = 'group' AND c.person = '')"
# Tells whose the words of a session `s` in the conversation `c` are.
SCOPE = f"CASE WHEN {SHARED} THEN c.id ELSE s.principal_id END"


def asked_from(context: TurnContext) -> SearchScope:
    """Return the scope of what may be told where this update came in."""
    update = context.update
    if is_shared(update.address, update.place_kind):
        return context.conversation
    return update.principal
