"""Which invitations the bot takes."""

from perdure.adapters.matrix.events import MEMBER, InvitedRoom, MemberContent, Sync, all_of, decoded
from perdure.adapters.matrix.manifest import MatrixSettings
from perdure.domain.people.access import EVERYBODY


def welcome(batch: Sync, settings: MatrixSettings, *, me: str) -> list[str]:
    """Rooms that we are invited to and join; the others are left as they are."""
    if settings.invites == "never":
        return []
    invited = batch.rooms.invite.items()
    return [room for room, each in invited if _is_taken(room, each, settings, me)]


def _is_taken(room: str, invitation: InvitedRoom, settings: MatrixSettings, me: str) -> bool:
    """When somebody who may speak invites us, or anybody to a place where all may. With pairing
    strangers may ask to be let in, and for that they need a room with us alone."""
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
