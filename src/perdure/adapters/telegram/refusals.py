"""Interprets the refusals of a Bot API server, and says what to do about them.

Telegram sorts its refusals mostly by their English text, so the texts are listed here.
"""

from typing import Final

import msgspec

from perdure.domain.errors import Ambiguous, PerdureError, Permanent, Transient

RATE_LIMITED: Final = "rate_limited"
_SECTION: Final = "[adapters.telegram]"
# How much of the server's own text is quoted.
_WORDS_MAX: Final = 300
_NOT_FOUND: Final = ("not found", "n't found")
_SAME: Final = "message is not modified"
_FIXED: Final = "message can't be edited"
_INVALID_ID: Final = "message_id_invalid"
_NO_CHAT: Final = ("chat not found", "peer_id_invalid", "user is deactivated")
# Texts about a topic that was deleted or closed.
_NO_THREAD: Final = (
    "thread not found",
    "thread is closed",
    "topic not found",
    "topic is closed",
    "topic_closed",
    "topic_deleted",
    "topic_id_invalid",
    "topic_not_found",
)
# Texts about marks, about the form of a rich message, and about a text that has nothing but marks.
_NO_RENDERING: Final = (
    "can't parse message",
    "can't parse caption",
    "can't parse text",
    "entities",
    "entity",
    "parse mode",
    "parse_mode",
    "rich message",
    "rich_message",
    "text is empty",
    "text must be non-empty",
)


class Parameters(msgspec.Struct, frozen=True):
    """Holds what a refusal says besides its text: how long to wait, and where a group has moved."""

    retry_after: float | None = None
    migrate_to_chat_id: int | None = None


class BotApiAnswer(msgspec.Struct, frozen=True):
    """Holds an answer. Some servers use `message` instead of `description`."""

    ok: bool = False
    result: msgspec.Raw = msgspec.Raw(b"null")
    description: str | None = None
    message: str | None = None
    error_code: int | None = None
    parameters: Parameters | None = None

    @property
    def words(self) -> str:
        """Return the server's own text in one line, shortened."""
        said = " ".join((self.description or self.message or "no reason given").split())
        return said[:_WORDS_MAX]


class Refused(Permanent):
    """Says that the server refused a call, so it had no effect. `moved_to` is the group's new
    number, if it has moved. `words` is the server's own text."""

    def __init__(self, message: str, *, status: int, words: str, moved_to: int | None) -> None:
        super().__init__(message)
        self.status = status
        self.words = words
        self.moved_to = moved_to

    @property
    def is_unknown_method(self) -> bool:
        """Tell whether the server does not know the method."""
        return self.status in (404, 501) or _is_unknown(self.words)

    @property
    def is_gone(self) -> bool:
        """Tell whether the message that the call names does not exist."""
        said = self.words.casefold()
        is_missing = "message" in said and _has_any(said, _NOT_FOUND)
        is_bad = (is_missing or _INVALID_ID in said) and not self.is_thread_gone
        return self.status == 400 and is_bad

    @property
    def is_unchanged(self) -> bool:
        """Tell whether the message already has the text of the edit."""
        return self.status == 400 and _SAME in self.words.casefold()

    @property
    def is_fixed(self) -> bool:
        """Tell whether the message exists but can no longer be edited by us."""
        return self.status == 400 and _FIXED in self.words.casefold()

    @property
    def is_thread_gone(self) -> bool:
        """Tell whether the topic was deleted or closed."""
        return self.status == 400 and _has_any(self.words, _NO_THREAD)

    @property
    def is_about_rendering(self) -> bool:
        """Tell whether the same words may be accepted without marks."""
        return self.status == 400 and _has_any(self.words, _NO_RENDERING)

    @property
    def is_about_content(self) -> bool:
        """Tell whether the content was refused, so that another form of it may be accepted in the
        same chat."""
        is_elsewhere = self.moved_to is not None or self.is_gone or self.is_thread_gone
        return self.status == 400 and not is_elsewhere


def _has_any(words: str, sought: tuple[str, ...]) -> bool:
    said = words.casefold()
    return any(each in said for each in sought)


def _is_unknown(words: str) -> bool:
    """Tell whether the text says that the method is not found or not supported."""
    _, found, rest = words.casefold().partition("method")
    return bool(found) and _has_any(rest, ("not found", "not supported"))


def refusal(method: str, status: int, answer: BotApiAnswer, *, is_repeatable: bool) -> PerdureError:
    """Return the error for a refused call. `is_repeatable` decides what a server's failure (5xx)
    means: `Transient`, or else `Ambiguous`."""
    parameters = answer.parameters or Parameters()
    wait_s = parameters.retry_after
    if status == 429:
        return Transient(
            f"{method}: Telegram takes no more for now; it is tried again later",
            code=RATE_LIMITED,
            retry_after_s=wait_s,
        )
    if status == 409:
        return Transient(
            f"{method}: another program receives this bot's messages ({answer.words}); stop it, or "
            "make a bot of its own for each with @BotFather",
            code="conflict",
        )
    if status >= 500 and not _is_unknown(answer.words):
        words = f"{method}: Telegram failed ({status}: {answer.words})"
        if is_repeatable:
            return Transient(f"{words}; it is tried again later", retry_after_s=wait_s)
        return Ambiguous(f"{words}; look into the chat whether it arrived", retry_after_s=wait_s)
    return Refused(
        f"{method}: {_advice(status, answer.words)}",
        status=status,
        words=answer.words,
        moved_to=parameters.migrate_to_chat_id,
    )


def _advice(status: int, words: str) -> str:
    """Return what a person can do about a refusal."""
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
        case _ if _has_any(words, _NO_CHAT):
            return f"no such chat ({words}); the person has to write to the bot first"
        case _:
            return f"Telegram refuses this ({words}); change what is sent, or send it by hand"
