"""Decides which invitations to rooms the bot accepts."""

from perdure.adapters.matrix.events import MEMBER, InvitedRoom, MemberContent, Sync, all_of, decoded
from perdure.adapters.matrix.manifest import MatrixSettings
from perdure.domain.people.access import EVERYBODY


def welcome(batch: Sync, settings: MatrixSettings, *, me: str) -> list[str]:
    """Return the rooms whose invitation the bot accepts. The other invitations are left
    unanswered."""
    if settings.invites == "never":
        return []
    invited = batch.rooms.invite.items()
    return [room for room, each in invited if _is_taken(room, each, settings, me)]


def _is_taken(room: str, invitation: InvitedRoom, settings: MatrixSettings, me: str) -> bool:
    """Tell whether the bot accepts an invitation: from a person who may speak, or to a place where
    everybody may. With pairing, strangers may ask to be let in, and for that they need a direct
    chat with the bot."""
    for event in all_of(invitation.invite_state.events):
        if event.type != MEMBER or event.state_key != me:
            continue
        member = decoded(event.content, MemberContent)
        if member is None or member.membership != "invite":
            continue
        allowed = {*settings.allow, *settings.operators}
        is_known = event.sender in allowed or EVERYBODY in allowed
        return is_known or room in settings.allow_places or (settings.pairing and member.is_direct)
    return False
