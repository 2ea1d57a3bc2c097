"""Defines what a case says about groups: who writes there, and how."""

from typing import Never
from unittest import SkipTest

from perdure.domain.address import Address
from perdure.ports.platform.adapter import Platform


class NotHere(SkipTest):
    """Reports that the platform does not have something, or that its test server cannot show it.
    The text says which, and why."""


class GroupCase:
    """Describes the groups of a platform to the suite. Every method that a case does not override
    raises `NotHere`."""

    platform: Platform

    def has_no(self, what: str) -> Never:
        """Skip the test that needs this."""
        raise NotHere(f"{self.platform.name}: no {what}")

    async def group(self) -> Address:
        """Return a place where others read along. The address has a thread if the bot always
        answers in threads there."""
        self.has_no("groups")

    async def say_in_group(self, text: str, *, mention: bool, is_stranger: bool = False) -> str:
        """Let someone write in the group, and with `mention` address the bot by its name. Returns
        the external id."""
        self.has_no("group messages")

    async def reply_in_group(self, external_id: str, text: str) -> str:
        """Let `person` answer a message of the group, in the way that the platform has for it, and
        address the bot by its name. Returns the external id."""
        self.has_no("replies in groups")

    async def call_another_bot(self, text: str) -> str:
        """Let `person` address another bot of the group by its name. Returns the external id."""
        self.has_no("way to tell other bots from people")

    async def command_another_bot(self, command: str) -> None:
        """Let `person` give another bot of the group a command, by its name."""
        self.has_no("commands that name a bot")

    async def forward_to_group(self, text: str) -> str:
        """Let `person` forward to the group what `stranger` has written elsewhere. The forwarded
        text addresses the bot by its name. Returns the external id."""
        self.has_no("forwards")

    async def answered_at(self, external_id: str) -> Address:
        """Return where the bot answers a message of the group, if that is not the group's own
        address."""
        return await self.group()

    async def migrate(self, *, keeps_messages: bool) -> Address:
        """Turn the group into another one and return its address. Its messages move along or are
        gone. `group` still names the old one, because that is the address the gateway has stored.
        The platform tells the adapter of it."""
        self.has_no("groups that move")
