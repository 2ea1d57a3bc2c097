"""Implements `perdure pair`: lists pairings, and lets strangers in or out."""

from perdure.cli.printing import clean, print_json, when
from perdure.cli.tables import print_table
from perdure.cli.target import CommandTarget, answering
from perdure.ports.people.access import PairingView
from perdure.web import wire
from perdure.web.ops import pairings


async def list_pairings(target: CommandTarget) -> None:
    async with answering(target) as answers:
        found = await answers.ask(pairings.pairings)
    if target.is_json:
        print_json(found)
    elif not found.pairings:
        print("nobody has asked to be let in; [adapters.NAME] pairing = true lets strangers ask")
    else:
        rows = [
            [each.id, each.adapter, each.sender, each.name, each.state, when(each.asked_at)]
            for each in found.pairings
        ]
        print_table(["ID", "ADAPTER", "PERSON", "NAME", "STATE", "ASKED"], rows)


async def approve(target: CommandTarget, *, code: str) -> None:
    """Let in the person who got this code."""
    async with answering(target) as answers:
        pairing = await answers.ask(pairings.approve, body=wire.ApproveIn(code=code))
    _say(target, pairing, "may speak from now on")


async def revoke(target: CommandTarget, *, pairing: str) -> None:
    """Revoke a pairing."""
    async with answering(target) as answers:
        revoked = await answers.ask(pairings.revoke, pairing)
    _say(target, revoked, "may no longer speak by this pairing")


def _say(target: CommandTarget, pairing: PairingView, what: str) -> None:
    if target.is_json:
        print_json(pairing)
        return
    named = f" ({pairing.name})" if pairing.name else ""
    print(clean(f"{pairing.adapter}:{pairing.sender}{named} {what}"))
