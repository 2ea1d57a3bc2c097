"""Implements `perdure send` and `perdure places`: sends a message to a place, and lists the
places."""

from perdure.cli.printing import clean, print_json, when
from perdure.cli.tables import print_table
from perdure.cli.target import CommandTarget, answering
from perdure.web import wire
from perdure.web.api import places


async def send(target: CommandTarget, *, to: str, text: str, own_id: str | None) -> None:
    """Send a message to a place. With the same `own_id` it is sent only once."""
    async with answering(target) as answers:
        sent = await answers.ask(places.send, body=wire.SendIn(to=to, text=text, id=own_id))
    if target.is_json:
        print_json(sent)
    else:
        again = "had been sent already" if sent.duplicate else "is on its way"
        print(f"{sent.message} {again} to {clean(sent.conversation)}")


async def list_places(target: CommandTarget, *, limit: int, after: str | None) -> None:
    async with answering(target) as answers:
        found = await answers.ask(places.places, limit=limit, cursor=after)
    if target.is_json:
        print_json(found)
    elif not found.places:
        print("no places yet; one is known once somebody has written there")
    else:
        rows = [
            [each.address, each.adapter, each.kind, when(each.active_at), each.label, each.linked]
            for each in found.places
        ]
        print_table(["ADDRESS", "ADAPTER", "KIND", "LAST ACTIVE", "LABEL", "CONTINUES"], rows)
        if found.next:
            print(f"more with: perdure places --after {found.next}")
