"""Translates Slack's refusals into the domain's errors, with advice for a person.

Slack answers most refusals with status 200 and an error word. `Refused` keeps that word for callers
that act on it.
"""

import math
from typing import Final

import msgspec

from perdure.domain.errors import Ambiguous, PerdureError, Permanent, Transient
from perdure.ports.platform.adapter import ACCOUNT_WAIT

TOKEN_KEY: Final = "token"  # noqa: S105 - the name of a key
APP_TOKEN_KEY: Final = "app_token"  # noqa: S105

# Slack does not accept the token.
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
# The one method whose rate limit Slack counts by channel.
BY_CHANNEL: Final = "chat.postMessage"
_LIMITED: Final = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})
# Slack did not begin to carry out the request.
_LATER: Final = frozenset({"request_timeout", "service_unavailable", "team_added_to_org"})
# Slack documents that a part of the request may have been carried out.
_BROKEN: Final = frozenset({"fatal_error", "internal_error"})
# The first message of the thread is gone, never existed, or does not allow replies.
_THREAD_REFUSED: Final = frozenset(
    {
        "cannot_reply_to_message",
        "invalid_thread_ts",
        "restricted_action_non_threadable_channel",
        "thread_not_found",
    }
)
# Beginnings of the error words for blocks or markdown that Slack does not accept.
_RENDERING_REFUSED: Final = ("invalid_blocks", "invalid_markdown", "msg_blocks_too_long")
# What to do about refusals that concern a place, by Slack's error word.
_PLACES: Final = {
    "channel_not_found": "there is no such channel for the bot; invite it with /invite",
    "not_in_channel": "the bot is not in that channel; invite it with /invite",
    "is_archived": "the channel is archived; unarchive it",
    "thread_not_found": "what the thread began with is gone; write in the channel anew",
    "restricted_action": "the workspace does not let the bot write there; ask its owner",
    "team_access_not_granted": "the app is not installed in that workspace; install it",
}


class Refused(Permanent):
    """Reports a refusal that waiting does not change. `error` is Slack's error word."""

    def __init__(self, message: str, *, error: str) -> None:
        super().__init__(message)
        self.error = error


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """Holds how Slack refused: its error word, the missing scope, and how long to wait."""

    error: str = ""
    status: int = 200
    needed: str = ""
    retry_after_s: float | None = None


def refusal(
    method: str, said: Said, *, token_key: str = TOKEN_KEY, is_repeatable: bool
) -> PerdureError:
    """Return the domain's error for a refusal."""
    error, status, retry_after_s = said.error, said.status, said.retry_after_s
    words = f"Slack refused {method} ({error or status})"
    if status == 429 or error in _LIMITED:
        return limited(method, retry_after_s)
    if error in _LATER:
        return Transient(f"{words}: it is not at work now", retry_after_s=retry_after_s)
    if status >= 500 or error in _BROKEN:
        if is_repeatable:
            return Transient(f"{words}: it has a fault of its own", retry_after_s=retry_after_s)
        return Ambiguous(
            f"{words} and may have done it; look into the channel", retry_after_s=retry_after_s
        )
    return Refused(f"{words}; {_advice(error, said.needed, token_key)}", error=error)


def is_of_thread(refused: Refused) -> bool:
    """Tell whether Slack refuses because of the thread."""
    return refused.error in _THREAD_REFUSED


def is_of_rendering(refused: Refused) -> bool:
    """Tell whether Slack refuses the form of a text, and not its content or its length."""
    error = refused.error
    return error.startswith(_RENDERING_REFUSED) or error == "unsupported_block_type"


def limited(method: str, wait_s: float | None) -> Transient:
    """Return the error that says that Slack takes no more calls of a method for a while."""
    wait = f" and asked to wait {math.ceil(wait_s)} s" if wait_s else ""
    return Transient(
        f"Slack took no more calls of {method}{wait}",
        # Slack counts posts by channel, and every other method for the whole app.
        code=None if method == BY_CHANNEL else ACCOUNT_WAIT,
        retry_after_s=wait_s,
    )


def _advice(error: str, needed: str, token_key: str) -> str:
    """Return what a person can do about a refusal."""
    if error in _TOKEN_REFUSED:
        return f"set {token_key} in [adapters.slack] to a token of this app that is still valid"
    if error == "missing_scope":
        scope = f"the scope {needed}" if needed else "what it misses"
        return f"give the app {scope} under OAuth & Permissions and install it again"
    return _PLACES.get(error, "docs/adapters/slack.md says what the app must be allowed to do")
