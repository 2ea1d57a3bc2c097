"""Implements `perdure parked`: lists, shows, replays and drops what could not be delivered."""

from perdure.cli.printing import clean, print_json, when
from perdure.cli.tables import print_table
from perdure.cli.target import CommandTarget, answering
from perdure.domain.journal.records import PartView
from perdure.web import wire
from perdure.web.ops import parked


async def list_parked(target: CommandTarget, *, limit: int, after: str | None) -> None:
    async with answering(target) as answers:
        found = await answers.ask(parked.parked, limit=limit, cursor=after)
    if target.is_json:
        print_json(found)
    elif not found.parked:
        print("nothing is parked")
    else:
        rows = [
            [each.id, each.address, each.step, each.state, when(each.at), each.error, each.text]
            for each in found.parked
        ]
        print_table(["ID", "TO", "STEP", "STATE", "SINCE", "WHY", "TEXT"], rows)
        if found.next:
            print(f"more with: perdure parked list --after {found.next}")


async def show(target: CommandTarget, *, part: str) -> None:
    """Print one part that could not be delivered, with its text."""
    async with answering(target) as answers:
        found = await answers.ask(parked.part, part)
    if target.is_json:
        print_json(found)
        return
    print(clean(f"{found.id}  {found.step} to {found.address}, {found.state} {when(found.at)}"))
    print(clean(f"  tries  {found.attempts}"))
    print(clean(f"  why    {found.error or 'nobody knows'}"))
    if found.turn:
        print(f"  turn   {found.turn} (perdure explain shows all of it)")
    if found.media:
        print(f"  file   {found.media}")
    if found.text:
        print(f"\n{clean(found.text)}")


async def replay(target: CommandTarget, *, part: str, force: bool) -> None:
    """Send a parked part again. `force` also sends one that may have arrived before."""
    async with answering(target) as answers:
        found = await answers.ask(parked.replay, part, body=wire.ReplayIn(force=force))
    _say(target, found, f"is on its way to {found.address} again")


async def drop(target: CommandTarget, *, part: str) -> None:
    """Remove a parked part from the list without sending it."""
    async with answering(target) as answers:
        found = await answers.ask(parked.drop, part)
    _say(target, found, "is dropped")


def _say(target: CommandTarget, part: PartView, what: str) -> None:
    if target.is_json:
        print_json(part)
    else:
        print(clean(f"{part.id} {what}"))
