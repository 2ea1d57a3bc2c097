"""What can go wrong at a model server, and what to do about it.

Each function gives a `ModelFailure`: the reason programs see, the words people see, and whether the
same call may simply be made again. Words of the provider are quoted, short and without secrets.
"""

import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import urlsplit

import msgspec

from perdure.agents.chat.complaints import Complaint
from perdure.domain.errors import OUT_OF_FILES
from perdure.domain.outcomes import StopReason
from perdure.domain.text import storable
from perdure.domain.turn.stream import Stopped
from perdure.domain.urls import shown_url

_RETRIED: Final = frozenset({408, 409, 425, 429})
_NO_CREDIT: Final = frozenset({"insufficient_quota", "billing_not_active"})
_TOO_LONG: Final = re.compile(
    r"context.{0,3}(length|window)|maximum context|too long|too many tokens|too large",
    re.IGNORECASE,
)
_AGAIN: Final = "send the message again"
# Shorter ones are placeholders such as "none", and blotting them out would garble the words.
_SECRET_MIN: Final = 8


class ModelFailure(msgspec.Struct, frozen=True, kw_only=True):
    """`status` is the HTTP status by which the server refused, 0 if there was none."""

    reason: StopReason
    detail: str
    may_retry: bool = False
    status: int = 0
    retry_after_s: float | None = None

    def as_stopped(self) -> Stopped:
        return Stopped(
            reason=self.reason,
            detail=self.detail,
            may_retry=self.may_retry,
            status=self.status,
            retry_after_s=self.retry_after_s,
        )


class ModelServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the words may mention: the agent, its model, the address; and what they must not: the
    keys, and what may be secret in the address."""

    agent: str
    model: str
    url: str
    secrets: tuple[str, ...] = ()
    url_secrets: tuple[str, ...] = ()

    def failure(
        self,
        reason: StopReason,
        words: str,
        *,
        may_retry: bool = False,
        status: int = 0,
        retry_after_s: float | None = None,
    ) -> ModelFailure:
        keys = [secret for secret in self.secrets if len(secret) >= _SECRET_MIN]
        for secret in (*keys, *self.url_secrets):
            words = words.replace(secret, "***")
        return ModelFailure(
            reason=reason,
            detail=storable(words),
            may_retry=may_retry,
            status=status,
            retry_after_s=retry_after_s,
        )


def refused(
    server: ModelServerInfo,
    status: int,
    said: Complaint,
    *,
    location: str = "",
    retry_after_s: float | None = None,
) -> ModelFailure:
    """A response that is not a success."""
    quoted = f": {said.text}" if said.text else ""
    if status in _RETRIED or status >= 500:
        return _overloaded(server, status, said, retry_after_s)
    if 300 <= status < 400:
        words = (
            f"{server.url} redirects to {_bare(location)}, which is not followed because it would "
            f"be told the key; set base_url of agent {server.agent} to the final address"
        )
    elif status == 401:
        words = f"{server.url} refused the key (401); check api_key of agent {server.agent}"
    elif status == 403:
        words = f"{server.url} forbids this (403){quoted}; check api_key of agent {server.agent}"
    elif status == 404:
        words = (
            f"{server.url} knows no such model or address (404){quoted}; check model "
            f"({server.model!r}) and base_url of agent {server.agent}"
        )
    elif status == 413 or _TOO_LONG.search(f"{said.code} {said.text}"):
        words = (
            f"the conversation is too long for {server.model} ({status}){quoted}; "
            "begin a new conversation, or choose a model with a larger window"
        )
        return server.failure(StopReason.CONTEXT_EXCEEDED, words, status=status)
    else:
        words = (
            f"{server.url} refused the request ({status}){quoted}; "
            f"check the settings of agent {server.agent}"
        )
    return server.failure(StopReason.PROVIDER_REJECTED, words, status=status)


def _overloaded(
    server: ModelServerInfo, status: int, said: Complaint, retry_after_s: float | None
) -> ModelFailure:
    quoted = f": {said.text}" if said.text else ""
    if said.code in _NO_CREDIT:
        words = f"{server.url} has no credit left for this key ({status}){quoted}; top it up"
        return server.failure(StopReason.PROVIDER_REJECTED, words, status=status)
    if status == 429:
        wait = f" in {retry_after_s:.0f} s" if retry_after_s else " later"
        words = f"{server.url} takes no more requests now (429){quoted}; {_AGAIN}{wait}"
    else:
        words = f"{server.url} failed ({status}){quoted}; {_AGAIN}, or look at the server"
    return server.failure(
        StopReason.PROVIDER_ERROR,
        words,
        may_retry=True,
        status=status,
        retry_after_s=retry_after_s,
    )


def retry_after_s(headers: Mapping[str, str], *, now_ms: int) -> float | None:
    """The wait the server asked for, given in seconds or as a date, or in milliseconds."""
    exact = headers.get("Retry-After-Ms", "").strip()
    if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", exact):
        return float(exact) / 1000
    value = headers.get("Retry-After", "").strip()
    if not value:
        return None
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value):
        return float(value)
    until_s = _instant_s(value)
    if until_s is None:
        return None
    # The server's own clock, where it says what that shows: ours may be wrong by hours.
    asked_s = _instant_s(headers.get("Date", ""))
    return max(0.0, until_s - (now_ms / 1000 if asked_s is None else asked_s))


def _instant_s(value: str) -> float | None:
    """Read the date of a header, in seconds since 1970."""
    try:
        date = parsedate_to_datetime(value)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def unreachable(server: ModelServerInfo, error: Exception) -> ModelFailure:
    words = f"nothing answers at {server.url} ({_plain(error)}); is the server running?"
    return server.failure(StopReason.PROVIDER_UNREACHABLE, words, may_retry=True)


def no_descriptor(server: ModelServerInfo) -> ModelFailure:
    """Nobody was asked: this process could not open one more connection."""
    words = f"{server.url} was not asked: {OUT_OF_FILES}"
    return server.failure(StopReason.OUT_OF_DESCRIPTORS, words, may_retry=True)


def unknown_host(server: ModelServerInfo) -> ModelFailure:
    host = urlsplit(server.url).hostname
    words = f"the name {host!r} cannot be resolved; check base_url of agent {server.agent}"
    return server.failure(StopReason.PROVIDER_UNREACHABLE, words, may_retry=True)


def untrusted(server: ModelServerInfo, error: Exception) -> ModelFailure:
    words = (
        f"no safe connection to {server.url} ({_plain(error)}); "
        f"check base_url of agent {server.agent} and the server's certificate"
    )
    return server.failure(StopReason.PROVIDER_UNREACHABLE, words)


def no_connection_in_time(server: ModelServerInfo, seconds: float) -> ModelFailure:
    words = (
        f"no connection to {server.url} within {seconds:g} s; is the server running? "
        f"connect_timeout_s of agent {server.agent} sets the wait"
    )
    return server.failure(StopReason.PROVIDER_UNREACHABLE, words, may_retry=True)


def no_token_in_time(server: ModelServerInfo, seconds: float) -> ModelFailure:
    words = (
        f"{server.url} sent no first word within {seconds:g} s; is {server.model} still loading? "
        f"{_AGAIN}, or raise first_token_timeout_s of agent {server.agent}"
    )
    return server.failure(StopReason.PROVIDER_TIMEOUT, words)


def silent(server: ModelServerInfo, seconds: float) -> ModelFailure:
    words = (
        f"{server.url} fell silent for {seconds:g} s in the middle of its answer; "
        f"{_AGAIN}, or raise silence_timeout_s of agent {server.agent}"
    )
    return server.failure(StopReason.PROVIDER_TIMEOUT, words)


def cut(server: ModelServerInfo, *, has_told: bool, has_begun: bool) -> ModelFailure:
    """An answer without an end. The call may be made again if not even a thought has come."""
    if has_told:
        words = f"{server.url} broke off before it had finished; what came is kept, {_AGAIN}"
    else:
        words = f"{server.url} broke off before the first word of its answer; {_AGAIN}"
    return server.failure(StopReason.PROVIDER_CUT, words, may_retry=not has_begun)


def gone(server: ModelServerInfo) -> ModelFailure:
    """The connection broke before any answer; the server may just have been restarted."""
    words = f"{server.url} closed the connection without an answer; is the server healthy?"
    return server.failure(StopReason.PROVIDER_UNREACHABLE, words, may_retry=True)


def garbage(server: ModelServerInfo) -> ModelFailure:
    words = (
        f"{server.url} sent something that is not a model's answer; "
        f"check base_url and api of agent {server.agent}"
    )
    return server.failure(StopReason.PROVIDER_ERROR, words)


def too_much(server: ModelServerInfo, excess: str) -> ModelFailure:
    words = f"{excess}; what was said before that is kept, ask agent {server.agent} for less"
    return server.failure(StopReason.ANSWER_EXCEEDED, words)


def said_at_once(
    server: ModelServerInfo, said: Complaint, *, retry_after_s: float | None
) -> ModelFailure:
    """An error that came in the place of an answer, under a status of success: what it says counts,
    not the status. One that names no known case is a failure of the server's, as a 500 is."""
    wait_s = retry_after_s if said.retry_after_s is None else said.retry_after_s
    if said.status:
        return refused(server, said.status, said, retry_after_s=wait_s)
    if _TOO_LONG.search(f"{said.code} {said.text}"):
        return refused(server, 400, said)
    return said_error(server, said, may_retry=True, retry_after_s=wait_s)


def said_error(
    server: ModelServerInfo,
    said: Complaint,
    *,
    may_retry: bool = False,
    retry_after_s: float | None = None,
) -> ModelFailure:
    """An error in the middle of an answer, or one of which nothing more is known."""
    why = said.text or "it gave no reason"
    words = f"{server.url} failed: {why}; {_AGAIN}, or look at the server"
    return server.failure(
        StopReason.PROVIDER_ERROR, words, may_retry=may_retry, retry_after_s=retry_after_s
    )


def unusable(server: ModelServerInfo) -> ModelFailure:
    """The error itself may quote a header, and with it the key."""
    words = (
        f"no request can be made to {server.url}; "
        f"check base_url, api_key and headers of agent {server.agent} for stray characters"
    )
    return server.failure(StopReason.PROVIDER_REJECTED, words)


def _bare(location: str) -> str:
    """Return where a redirect leads, without what may be secret in it."""
    return shown_url(location) if "://" in location else "another place of its own"


def _plain(error: Exception) -> str:
    text = getattr(error, "strerror", None) or type(error).__name__
    return " ".join(str(text).split())[:200]
