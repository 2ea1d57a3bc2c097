"""Why Slack says no, and what to do about it.

Slack answers most refusals with status 200 and one word. Those that callers act on are kept as
`Refused`; all others only need to be told to a person.
"""

import math
from typing import Final

import msgspec

from perdure.domain.errors import Ambiguous, PerdureError, Permanent, Transient
from perdure.ports.platform.adapter import ACCOUNT_WAIT

TOKEN_KEY: Final = "token"  # noqa: S105 - the name of a key
APP_TOKEN_KEY: Final = "app_token"  # noqa: S105

_TOKEN_REFUSED: Final = frozenset(
    {
        "account_inactive",
        "invalid_auth",
        "not_allowed_token_type",
        "not_authed",
        "token_expired",
        "token_revoked",
    }
)
BY_CHANNEL: Final = "chat.postMessage"
_LIMITED: Final = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})
# The request never reached what it asks for.
_LATER: Final = frozenset({"request_timeout", "service_unavailable", "team_added_to_org"})
# Slack says of these that part of it may have been done.
_BROKEN: Final = frozenset({"fatal_error", "internal_error"})
# What a thread begins with is gone, was never there, or cannot be answered.
_THREAD_REFUSED: Final = frozenset(
    {
        "cannot_reply_to_message",
        "invalid_thread_ts",
        "restricted_action_non_threadable_channel",
        "thread_not_found",
    }
)
_RENDERING_REFUSED: Final = ("invalid_blocks", "invalid_markdown", "msg_blocks_too_long")
_PLACES: Final = {
    "channel_not_found": "there is no such channel for the bot; invite it with /invite",
    "not_in_channel": "the bot is not in that channel; invite it with /invite",
    "is_archived": "the channel is archived; unarchive it",
    "thread_not_found": "what the thread began with is gone; write in the channel anew",
    "restricted_action": "the workspace does not let the bot write there; ask its owner",
    "team_access_not_granted": "the app is not installed in that workspace; install it",
}


class Refused(Permanent):
    """Slack's own word is in `error`."""

    def __init__(self, message: str, *, error: str) -> None:
        super().__init__(message)
        self.error = error


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """How Slack refused: its word, the scope that it misses, how long to wait."""

    error: str = ""
    status: int = 200
    needed: str = ""
    retry_after_s: float | None = None


def refusal(
    method: str, said: Said, *, token_key: str = TOKEN_KEY, is_repeatable: bool
) -> PerdureError:
    error, status, retry_after_s = said.error, said.status, said.retry_after_s
    words = f"Slack refused {method} ({error or status})"
    if status == 429 or error in _LIMITED:
        return limited(method, retry_after_s)
    if error in _LATER:
        return Transient(f"{words}: it is not at work now", retry_after_s=retry_after_s)
    if status >= 500 or error in _BROKEN:
        if is_repeatable:
            return Transient(f"{words}: it has a fault of its own", retry_after_s=retry_after_s)
        return Ambiguous(f"{words} and may have done it; look into the channel")
    return Refused(f"{words}; {_advice(error, said.needed, token_key)}", error=error)


def is_of_thread(refused: Refused) -> bool:
    return refused.error in _THREAD_REFUSED


def is_of_rendering(refused: Refused) -> bool:
    """Whether Slack refuses how a text is written, not what it says or how long it is."""
    error = refused.error
    return error.startswith(_RENDERING_REFUSED) or error == "unsupported_block_type"


def limited(method: str, wait_s: float | None) -> Transient:
    """Say that Slack takes no more calls of a method for a while."""
    wait = f" and asked to wait {math.ceil(wait_s)} s" if wait_s else ""
    return Transient(
        f"Slack took no more calls of {method}{wait}",
        # Posts are counted by channel, every other method for the whole app.
        code=None if method == BY_CHANNEL else ACCOUNT_WAIT,
        retry_after_s=wait_s,
    )


def _advice(error: str, needed: str, token_key: str) -> str:
    if error in _TOKEN_REFUSED:
        return f"set {token_key} in [adapters.slack] to a token of this app that is still valid"
    if error == "missing_scope":
        scope = f"the scope {needed}" if needed else "what it misses"
        return f"give the app {scope} under OAuth & Permissions and install it again"
    return _PLACES.get(error, "docs/adapters/slack.md says what the app must be allowed to do")
