"""Describes what can go wrong at a model server, and what to do about it.

Each function returns a `ModelFailure`: the reason for programs, the text for people, and whether
the same call may be repeated. Words of the provider are quoted, shortened and without secrets.
"""

import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import urlsplit

import msgspec

from perdure.agents.chat.complaints import Complaint
from perdure.agents.chat.wordings import ComplaintKind, NamedSizes, kind_of, sizes_of
from perdure.domain.errors import OUT_OF_FILES
from perdure.domain.outcomes import Refused, StopReason
from perdure.domain.text import storable
from perdure.domain.turn.stream import Stopped
from perdure.domain.urls import shown_url

# Statuses below 500 after which the same request may succeed.
_RETRIED: Final = frozenset({408, 409, 425, 429})
# Provider words for a limit that waiting does not lift, although the status is 429.
_NO_CREDIT: Final = frozenset({"insufficient_quota", "billing_not_active"})
# Refusals of the caller itself. Words about the request would not explain them.
_OF_THE_CALLER: Final = frozenset({401, 402, 403})
# What may be refused with 413 although the conversation is short enough.
_NOT_LENGTH: Final = (ComplaintKind.MEMORY, ComplaintKind.SIGHT, ComplaintKind.PICTURE)
_BAD_REQUEST: Final = frozenset({400, 406, 413, 415, 422, 451})
# The statuses with which servers refuse the content of a request, by what they complain about. With
# other statuses the same words have another cause: a rate limit, the key, a fault of the server.
_REFUSING: Final[Mapping[ComplaintKind | None, frozenset[int]]] = {
    ComplaintKind.SIGHT: _BAD_REQUEST | {404, 500, 501},
    ComplaintKind.PICTURE: _BAD_REQUEST,
    ComplaintKind.MODERATION: _BAD_REQUEST | {403},
    ComplaintKind.POLICY: _BAD_REQUEST,
    ComplaintKind.FILE: _BAD_REQUEST,
}
_WHAT: Final[Mapping[ComplaintKind | None, tuple[str, Refused | None]]] = {
    ComplaintKind.SIGHT: ("the picture", Refused.PICTURE),
    ComplaintKind.PICTURE: ("the picture", Refused.PICTURE),
    ComplaintKind.MODERATION: ("the message", Refused.MESSAGE),
    ComplaintKind.POLICY: ("the message", Refused.MESSAGE),
    ComplaintKind.FILE: ("a file", None),
}
_AGAIN: Final = "send the message again"
# Shorter keys are placeholders such as "none". Replacing them would spoil ordinary words.
_SECRET_MIN: Final = 8


class ModelFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Describes one failure. `status` is the HTTP status of a refusal, or 0 if there was none.
    `sizes` are the tokens that the refusal of a long request names, and `refused` is what of the
    request the server did not take, if its words tell. `words` are those that everybody may read,
    and do not say where the server is."""

    reason: StopReason
    detail: str
    may_retry: bool = False
    status: int = 0
    retry_after_s: float | None = None
    sizes: NamedSizes = NamedSizes()
    refused: Refused | None = None
    words: str = ""

    def as_stopped(self) -> Stopped:
        """Return the event that ends an agent's stream with this failure."""
        return Stopped(
            reason=self.reason,
            detail=self.detail,
            may_retry=self.may_retry,
            status=self.status,
            retry_after_s=self.retry_after_s,
            window=self.sizes.window,
            asked=self.sizes.asked,
            refused=self.refused,
            words=self.words,
        )


class ModelServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what error texts may name (agent, model, URL), and the secrets that they must not."""

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
        """Return a failure whose text has all secrets replaced."""
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
    """Describe a response that is no success. Its words are asked before its status."""
    quoted = f": {said.text}" if said.text else ""
    kind = _kind(status, said)
    if kind is ComplaintKind.WINDOW and status >= 400 and status not in _OF_THE_CALLER:
        return _too_long(server, status, said)
    if status in _REFUSING.get(kind, ()):
        return _content_refused(server, status, said, kind)
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
    else:
        words = (
            f"{server.url} refused the request ({status}){quoted}; "
            f"check the settings of agent {server.agent}"
        )
    failure = server.failure(StopReason.PROVIDER_REJECTED, words, status=status)
    told = _plainly(server, "the request", said)
    return msgspec.structs.replace(failure, words=told)


def _kind(status: int, said: Complaint) -> ComplaintKind | None:
    """Return what a refusal of a request complains about, or None if the words do not tell."""
    kind = kind_of(said)
    return ComplaintKind.WINDOW if status == 413 and kind not in _NOT_LENGTH else kind


def _too_long(server: ModelServerInfo, status: int, said: Complaint) -> ModelFailure:
    """Describe that the request is longer than what the model can read at once."""
    quoted = f": {said.text}" if said.text else ""
    words = (
        f"the conversation is too long for {server.model} ({status}){quoted}; "
        "begin a new conversation, or choose a model with a larger window"
    )
    failure = server.failure(StopReason.CONTEXT_EXCEEDED, words, status=status)
    return msgspec.structs.replace(failure, sizes=sizes_of(said))


def _content_refused(
    server: ModelServerInfo, status: int, said: Complaint, kind: ComplaintKind | None
) -> ModelFailure:
    """Describe that the server does not take what was asked. Everybody reads these words, so they
    do not say where the server is."""
    what, refused = _WHAT.get(kind, ("the message", None))
    told = _plainly(server, what, said)
    failure = server.failure(StopReason.CONTENT_REFUSED, told, status=status)
    return msgspec.structs.replace(failure, refused=refused, words=failure.detail)


def _plainly(server: ModelServerInfo, what: str, said: Complaint) -> str:
    """Return the server's own words for a refusal, without the place where it is."""
    words = server.failure(StopReason.CONTENT_REFUSED, said.text).detail
    words = words.replace(server.url, "its address").rstrip(". ")
    told = f": {words}" if words else ", without a reason"
    return f"the model's server refuses {what}{told}"


def _overloaded(
    server: ModelServerInfo, status: int, said: Complaint, retry_after_s: float | None
) -> ModelFailure:
    """Describe a refusal that may pass: a rate limit or a fault of the server."""
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
    """Return the wait that the headers ask for, in seconds; None if they name none.

    The headers may give it in milliseconds, in seconds, or as a date.
    """
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
    # A date is compared with the server's own clock if it sends one: ours may be wrong by hours.
    asked_s = _instant_s(headers.get("Date", ""))
    return max(0.0, until_s - (now_ms / 1000 if asked_s is None else asked_s))


def _instant_s(value: str) -> float | None:
    """Return the date of a header in seconds since 1970, or None if it is no date."""
    try:
        date = parsedate_to_datetime(value)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def unreachable(server: ModelServerInfo, error: Exception) -> ModelFailure:
    """Describe a server that accepts no connection."""
    words = f"nothing answers at {server.url} ({_plain(error)}); is the server running?"
    return server.failure(StopReason.PROVIDER_UNREACHABLE, words, may_retry=True)


def no_descriptor(server: ModelServerInfo) -> ModelFailure:
    """Describe that this process could not open another connection, so nobody was asked."""
    words = f"{server.url} was not asked: {OUT_OF_FILES}"
    return server.failure(StopReason.OUT_OF_DESCRIPTORS, words, may_retry=True)


def unknown_host(server: ModelServerInfo) -> ModelFailure:
    """Describe a host name that cannot be resolved."""
    host = urlsplit(server.url).hostname
    words = f"the name {host!r} cannot be resolved; check base_url of agent {server.agent}"
    return server.failure(StopReason.PROVIDER_UNREACHABLE, words, may_retry=True)


def untrusted(server: ModelServerInfo, error: Exception) -> ModelFailure:
    """Describe a failed TLS handshake, such as an untrusted certificate."""
    words = (
        f"no safe connection to {server.url} ({_plain(error)}); "
        f"check base_url of agent {server.agent} and the server's certificate"
    )
    return server.failure(StopReason.PROVIDER_UNREACHABLE, words)


def no_connection_in_time(server: ModelServerInfo, seconds: float) -> ModelFailure:
    """Describe a connection that was not opened in time."""
    words = (
        f"no connection to {server.url} within {seconds:g} s; is the server running? "
        f"connect_timeout_s of agent {server.agent} sets the wait"
    )
    return server.failure(StopReason.PROVIDER_UNREACHABLE, words, may_retry=True)


def no_token_in_time(server: ModelServerInfo, seconds: float) -> ModelFailure:
    """Describe a server that sent no first token in time."""
    words = (
        f"{server.url} sent no first word within {seconds:g} s; is {server.model} still loading? "
        f"{_AGAIN}, or raise first_token_timeout_s of agent {server.agent}"
    )
    return server.failure(StopReason.PROVIDER_TIMEOUT, words)


def silent(server: ModelServerInfo, seconds: float) -> ModelFailure:
    """Describe a server that was silent too long in the middle of an answer."""
    words = (
        f"{server.url} fell silent for {seconds:g} s in the middle of its answer; "
        f"{_AGAIN}, or raise silence_timeout_s of agent {server.agent}"
    )
    return server.failure(StopReason.PROVIDER_TIMEOUT, words)


def cut(server: ModelServerInfo, *, has_told: bool, has_begun: bool) -> ModelFailure:
    """Describe an answer that broke off. The call may be repeated if no token came, not even a
    thought."""
    if has_told:
        words = f"{server.url} broke off before it had finished; what came is kept, {_AGAIN}"
    else:
        words = f"{server.url} broke off before the first word of its answer; {_AGAIN}"
    return server.failure(StopReason.PROVIDER_CUT, words, may_retry=not has_begun)


def gone(server: ModelServerInfo) -> ModelFailure:
    """Describe a connection that broke before any answer, as when the server restarts."""
    words = f"{server.url} closed the connection without an answer; is the server healthy?"
    return server.failure(StopReason.PROVIDER_UNREACHABLE, words, may_retry=True)


def garbage(server: ModelServerInfo) -> ModelFailure:
    """Describe a response that is no model's answer."""
    words = (
        f"{server.url} sent something that is not a model's answer; "
        f"check base_url and api of agent {server.agent}"
    )
    return server.failure(StopReason.PROVIDER_ERROR, words)


def too_much(server: ModelServerInfo, excess: str) -> ModelFailure:
    """Describe an answer that exceeds its bounds. `excess` says which."""
    words = f"{excess}; what was said before that is kept, ask agent {server.agent} for less"
    return server.failure(StopReason.ANSWER_EXCEEDED, words)


def said_at_once(
    server: ModelServerInfo, said: Complaint, *, retry_after_s: float | None
) -> ModelFailure:
    """Describe an error that came instead of an answer, although the status was a success.

    The error's own words decide, not the status. An error of no known case counts as a fault of the
    server, like a status of 500.
    """
    wait_s = retry_after_s if said.retry_after_s is None else said.retry_after_s
    if said.status:
        return refused(server, said.status, said, retry_after_s=wait_s)
    if _is_about_request(said):
        return refused(server, 400, said)
    return said_error(server, said, may_retry=True, retry_after_s=wait_s)


def _is_about_request(said: Complaint) -> bool:
    """Tell whether the words complain about what was asked."""
    kind = kind_of(said)
    return kind is ComplaintKind.WINDOW or kind in _REFUSING


def said_error(
    server: ModelServerInfo,
    said: Complaint,
    *,
    may_retry: bool = False,
    retry_after_s: float | None = None,
) -> ModelFailure:
    """Describe an error in the middle of an answer, or one of no known case."""
    kind = kind_of(said)
    if (said.status or 400) in _REFUSING.get(kind, ()):
        return _content_refused(server, said.status, said, kind)
    why = said.text or "it gave no reason"
    words = f"{server.url} failed: {why}; {_AGAIN}, or look at the server"
    return server.failure(
        StopReason.PROVIDER_ERROR, words, may_retry=may_retry, retry_after_s=retry_after_s
    )


def unusable(server: ModelServerInfo) -> ModelFailure:
    """Describe a request that could not be made. The error is not quoted: it may contain a header,
    and with it the key."""
    words = (
        f"no request can be made to {server.url}; "
        f"check base_url, api_key and headers of agent {server.agent} for stray characters"
    )
    return server.failure(StopReason.PROVIDER_REJECTED, words)


def _bare(location: str) -> str:
    """Return where a redirect leads, without what may be secret in the URL."""
    return shown_url(location) if "://" in location else "another place of its own"


def _plain(error: Exception) -> str:
    """Return an operating system's error as short text."""
    text = getattr(error, "strerror", None) or type(error).__name__
    return " ".join(str(text).split())[:200]
