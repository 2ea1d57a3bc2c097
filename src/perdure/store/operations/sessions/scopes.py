"""Defines who may find the words of a conversation.

What is said in a shared place belongs to that conversation: it is found and read there, by
everybody who may speak there, and nowhere else. Everything else belongs to one person, and is found
from places where nobody else reads. A scope is the id of the conversation or the person; operators
search without a scope.
"""

from perdure.domain.address import is_shared
from perdure.domain.ids import ConversationId, PrincipalId
from perdure.store.operations.turn_context import TurnContext

SearchScope = PrincipalId | ConversationId

# A condition: several people take part in conversation `c`.
SHARED = "(c.kind = 'group' AND c.person = '')"
# The scope of a session `s` in the conversation `c`.
SCOPE = f"CASE WHEN {SHARED} THEN c.id ELSE s.principal_id END"


def asked_from(context: TurnContext) -> SearchScope:
    """Return the scope of what may be shown where this update came in."""
    update = context.update
    if is_shared(update.address, update.place_kind):
        return context.conversation
    return update.principal
