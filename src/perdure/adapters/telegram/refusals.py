"""What a Bot API server says when it does not do as asked, and what to do about it."""

import re
from typing import Final

import msgspec

from perdure.domain.errors import Ambiguous, PerdureError, Permanent, Transient

_SECTION: Final = "[adapters.telegram]"
_WORDS_MAX: Final = 300
_UNKNOWN: Final = re.compile(r"method.*not (found|supported)", re.IGNORECASE)
_GONE: Final = re.compile(r"message (to (edit|delete|react) )?.*(not|n't) found", re.IGNORECASE)
_SAME: Final = re.compile(r"message is not modified", re.IGNORECASE)
_NO_CHAT: Final = re.compile(r"chat not found|peer_id_invalid|user is deactivated", re.IGNORECASE)


class Parameters(msgspec.Struct, frozen=True):
    retry_after: float | None = None
    migrate_to_chat_id: int | None = None


class Answer(msgspec.Struct, frozen=True):
    """`message` is what some servers say in the place of a description."""

    ok: bool = False
    result: msgspec.Raw = msgspec.Raw(b"null")
    description: str | None = None
    message: str | None = None
    error_code: int | None = None
    parameters: Parameters | None = None

    @property
    def words(self) -> str:
        said = " ".join((self.description or self.message or "no reason given").split())
        return said[:_WORDS_MAX]


class Refused(Permanent):
    """The server will not do this. `moved_to` is the number that a group has now."""

    def __init__(self, message: str, *, status: int, words: str, moved_to: int | None) -> None:
        super().__init__(message)
        self.status = status
        self.words = words
        self.moved_to = moved_to

    @property
    def is_unknown_method(self) -> bool:
        return self.status in (404, 501) or _UNKNOWN.search(self.words) is not None

    @property
    def is_gone(self) -> bool:
        return self.status == 400 and _GONE.search(self.words) is not None

    @property
    def is_unchanged(self) -> bool:
        return self.status == 400 and _SAME.search(self.words) is not None

    @property
    def is_about_content(self) -> bool:
        """Said of what was sent, so that something else may be taken in its place."""
        return self.status == 400 and self.moved_to is None and not self.is_gone


def refusal(method: str, status: int, answer: Answer, *, is_repeatable: bool) -> PerdureError:
    parameters = answer.parameters or Parameters()
    if status == 429:
        wait_s = parameters.retry_after
        return Transient(
            f"{method}: Telegram takes no more for now; it is tried again later",
            code="rate_limited",
            retry_after_s=wait_s,
        )
    if status == 409:
        return Transient(
            f"{method}: another program receives this bot's messages ({answer.words}); stop it, or "
            "make a bot of its own for each with @BotFather",
            code="conflict",
        )
    if status >= 500 and _UNKNOWN.search(answer.words) is None:
        words = f"{method}: Telegram failed ({status}: {answer.words})"
        if is_repeatable:
            return Transient(f"{words}; it is tried again later")
        return Ambiguous(f"{words}; look into the chat whether it arrived")
    return Refused(
        f"{method}: {_advice(status, answer.words)}",
        status=status,
        words=answer.words,
        moved_to=parameters.migrate_to_chat_id,
    )


def _advice(status: int, words: str) -> str:
    match status:
        case 401:
            return (
                "the token is not valid; ask @BotFather for it (/mybots, API Token) and set token "
                f"of {_SECTION}"
            )
        case 404 | 501:
            return (
                f"the server does not know this ({words}); if nothing else works either, check "
                f"token and api_url of {_SECTION}"
            )
        case 403:
            return f"not allowed ({words}); let the bot in again, or unblock it, and replay this"
        case 413:
            return "the file is too large for Telegram; send it another way"
        case _ if 300 <= status < 400:
            return f"the server redirects, which is not followed; set api_url of {_SECTION}"
        case _ if _NO_CHAT.search(words):
            return f"no such chat ({words}); the person has to write to the bot first"
        case _:
            return f"Telegram refuses this ({words}); change what is sent, or send it by hand"
