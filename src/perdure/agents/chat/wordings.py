"""Recognizes what a provider complains about by its words.

Servers use one status for many cases: a request that is too long comes as 400, 413, 500 or inside a
stream that began with 200. So the words are read before the status. `WORDINGS` is read from above,
and the first row that fits decides. If none does, the status decides.

The first rows keep cases apart that use words of the rows below them: a server that lacks memory
may speak of its context length, and a limit per minute may speak of tokens.
"""

import re
from enum import StrEnum
from typing import Final

import msgspec

from perdure.agents.chat.complaints import Complaint


class ComplaintKind(StrEnum):
    """Says what a provider complains about. MEMORY: its machine lacks memory. RATE: too much was
    asked in too short a time. WINDOW: the request is longer than what the model can read at
    once. SIGHT: the model takes no pictures. PICTURE: something is wrong with a picture.
    MODERATION: what was said is not allowed. POLICY: some rule was broken, which may be one about
    the caller. FILE: something is wrong with a file."""

    MEMORY = "memory"
    RATE = "rate"
    WINDOW = "window"
    SIGHT = "sight"
    PICTURE = "picture"
    MODERATION = "moderation"
    POLICY = "policy"
    FILE = "file"


class NamedSizes(msgspec.Struct, frozen=True):
    """Holds the tokens that a refusal names: those of the model's `window`, and those `asked` for.
    A number is 0 if it is not named. None is ever guessed."""

    window: int = 0
    asked: int = 0


# What may stand between the words of a phrase.
_GAP: Final = r"[^.;]{0,40}?"
_MEMORY: Final = re.compile(
    r"\b(out of|insufficient|not enough|requires more)( (gpu|cuda|system|device|video))? memory"
    r"|\bout ?of ?memory|\boom\b|bad_alloc|cuda error|cublas|ggml_assert"
    r"|(failed|unable|cannot|could not)( to)? (allocate|load the model)"
    r"|larger than the maximum number of tokens that can be stored in",
    re.IGNORECASE,
)
# A single request above a limit per minute never passes, however long one waits.
_TOO_LARGE_AT_ONCE: Final = re.compile(r"\brequest too large for\b", re.IGNORECASE)
_RATE: Final = re.compile(
    r"\bper[ -](min|minute|hour|day|second)\b|\b[tr]p[md]\b"
    r"|\brate.?limit|\bquota\b|too many requests",
    re.IGNORECASE,
)
_WINDOW: Final = re.compile(
    r"context_?(length|window|size)_?exceeded|exceed_context_size|model_context_window_exceeded"
    r"|\bmax(imum)? (context|prompt|input|sequence|model)( token)?( length| window| size)?\b"
    rf"|\bcontext.(length|window|size|limit){_GAP}"
    r"(exceed|overflow|too (small|long)|larger|only|not enough)"
    rf"|(exceed|overflow|longer than|larger than|greater than|beyond|too long){_GAP}"
    r"\bcontext.(length|window|size|limit)"
    r"|\bcontext (the )?overflow|\bcontext is (full|too)\b"
    rf"|\b(prompt|input|conversation|messages?|request){_GAP}\btoo (long|large)\b"
    rf"|\b(prompt|input) (length|tokens?|token count){_GAP}(exceed|longer|greater)"
    rf"|\binput token count{_GAP}\bonly supports\b"
    r"|\btoo many (input |prompt )?tokens\b|\bstring too long\b"
    rf"|\bexceed(s|ed)?\b{_GAP}\b(token limit|max(imum)? length|number of tokens)\b"
    rf"|\bprompt exceeds\b|\binputs?\b{_GAP}\btokens{_GAP}\bmust (be|have)\b"
    r"|\bmust have less than \d{1,9} tokens|\btotal number of tokens\b"
    r"|\breduce the length of (the|your|either)\b|\bn_ctx\b"
    r"|\bcurrent length is \d{1,9} while limit is \d",
    re.IGNORECASE,
)
# Words about a single answer, a picture or a file. They use words of the window, and shortening the
# conversation does not help.
_NOT_WINDOW: Final = re.compile(
    r"at most \d{1,9} completion tokens|\bphysical batch size\b"
    r"|\b(image|picture|file|pixels?)\b[^.;]{0,30}\b(exceed|too large|size|dimension)",
    re.IGNORECASE,
)
_SEEN: Final = r"\b(images?|image_url|input_image|pictures?|photos?|vision|multi-?modal)\b"
_SIGHT: Final = re.compile(
    rf"{_SEEN}{_GAP}(not |n't |un)(support|available|allow|accept|enabled)"
    rf"|(not|n't|no|without|missing|lacks|only some|certain)\b{_GAP}{_SEEN}"
    r"|\bmmproj\b|unknown variant `?image|unsupported content"
    rf"|\bonly\b{_GAP}\b(text|strings?)\b{_GAP}(support|allow|accept)"
    rf"|\b(support|allow|accept)s?\b{_GAP}\bonly\b{_GAP}\b(text|strings?)\b"
    rf"|(must|should|has to|have to) be (of type )?(a |an )?(valid |plain )?(text|string)\b"
    rf"|\bexpect(s|ed|ing)?\b{_GAP}\bstring\b|invalid type: (sequence|map|array)"
    rf"|\b(array|list|sequence)s?\b{_GAP}not (support|allow|accept)"
    rf"|not (support|allow|accept)\w{{0,3}}\b{_GAP}\b(array|list|sequence|content part)s?\b"
    rf"|\bonly (support|allow|accept|take)s?\b{_GAP}\b(text|strings?)\b"
    r"|\bnot a (valid |plain )?string\b|\b(text|strings?)[ -]only\b|\bcannot be an? (list|array)\b"
    rf"|\bat most \d{{1,9}} images?\b|\btoo many images\b",
    re.IGNORECASE,
)
_PICTURE: Final = re.compile(
    rf"{_SEEN}|image[_ ](url|data|parse|content|file)|(invalid|unsupported)_image"
    r"|\bimage/[\w.+-]{1,30}\b|\bbase64\b|\bpixels?\b|\binline_?data\b",
    re.IGNORECASE,
)
_MODERATION: Final = re.compile(
    r"content.{0,3}(policy|filter|moderation|management|violation|exists risk|safety)"
    r"|\bmoderat(ion|ed)\b|\b(usage|safety|content|acceptable.use) (polic|guideline|system)"
    r"|\bsafety\b|\bflagged\b|\bguardrails?|responsible.?ai|prohibited.?content|\bunsafe\b"
    r"|\b(inappropriate|harmful|disallowed|forbidden|sensitive|offensive|illegal) "
    r"(content|material|words?|language|information|text|input)"
    r"|\bhigh risk\b|data.?inspection|\bjailbreak|\bnsfw\b|\bblock_?list"
    r"|\b(prompt|input|request|message|content|text|output) (was |is |has been )?"
    r"(blocked|filtered|censored)\b|敏感|不安全|违规",
    re.IGNORECASE,
)
_POLICY: Final = re.compile(
    r"\bpolic(y|ies)\b|\bguidelines?\b|\bterms of (use|service)\b",
    re.IGNORECASE,
)
_FILE: Final = re.compile(
    r"\b(unsupported|invalid|unknown|not support\w*|n't support|cannot|can't|could not|unable"
    rf"|failed|corrupt\w*|broken|empty|unrecogni[sz]ed)\b{_GAP}"
    r"\b(files?|documents?|pdfs?|attachments?|mime|media.?types?|audio|videos?)\b"
    rf"|\b(files?|documents?|pdfs?|attachments?|mime|media.?types?|audio|videos?)\b{_GAP}"
    r"(unsupported|invalid|not support|not allowed|not accept|corrupt|broken|damaged|unreadable"
    r"|could not|cannot|can't|n't support)",
    re.IGNORECASE,
)
WORDINGS: Final[tuple[tuple[ComplaintKind, re.Pattern[str]], ...]] = (
    (ComplaintKind.MEMORY, _MEMORY),
    (ComplaintKind.WINDOW, _TOO_LARGE_AT_ONCE),
    (ComplaintKind.RATE, _RATE),
    (ComplaintKind.WINDOW, _WINDOW),
    (ComplaintKind.SIGHT, _SIGHT),
    (ComplaintKind.PICTURE, _PICTURE),
    (ComplaintKind.MODERATION, _MODERATION),
    (ComplaintKind.POLICY, _POLICY),
    (ComplaintKind.FILE, _FILE),
)
# A number as texts have it, but none of thousands such as `128k`, which gives no exact size.
_N: Final = r"\d[\d,]{0,12})(?![\d,]{0,12} ?[km]\b)"
_W: Final = rf"(?P<window>{_N}"
_A: Final = rf"(?P<asked>{_N}"
# In this order: a pattern reads a number that a later one would mistake for another.
_SIZES: Final = (
    # From where a number begins only: from each digit, a long one takes a hundred times as long.
    re.compile(rf"(?<![\d,]){_A} tokens? > {_W} maximum", re.IGNORECASE),
    re.compile(rf"context limit: {_A} \+ \d[\d,]{{0,12}} > {_W}", re.IGNORECASE),
    re.compile(rf"\({_A} tokens?\){_GAP}context (?:size|length|window) \({_W}", re.IGNORECASE),
    re.compile(rf"n_keep \({_A}\) >= n_ctx \({_W}", re.IGNORECASE),
    re.compile(rf"\bn_ctx\W{{1,5}}{_W}", re.IGNORECASE),
    re.compile(
        rf"token count \(?{_A}\)? exceeds the maximum number of tokens allowed \(?{_W}",
        re.IGNORECASE,
    ),
    re.compile(rf"maximum number of tokens allowed \(?{_W}", re.IGNORECASE),
    re.compile(rf"token count is {_A} but{_GAP}only supports up to {_W}", re.IGNORECASE),
    re.compile(rf"contains {_A} tokens{_GAP}with {_W} maximum context", re.IGNORECASE),
    re.compile(rf"too large for model with {_W} maximum context", re.IGNORECASE),
    re.compile(
        rf"length {_A}\)? (?:is longer|exceeds|is greater){_GAP}(?:length|size|window|limit)"
        rf" (?:of )?\(?{_W}",
        re.IGNORECASE,
    ),
    re.compile(
        r"max(?:imum)? (?:context|prompt|model|input|sequence)[ \w]{0,20}?"
        rf"(?:length|window|size|tokens?),? ?(?:is|of|:|was)? ?\(?(?:only )?{_W}",
        re.IGNORECASE,
    ),
    re.compile(rf"token count of {_A} exceeds the limit of {_W}", re.IGNORECASE),
    re.compile(
        rf"context (?:length|window|size|limit) ?(?:is|of|:)? ?(?:only )?\(?{_W}", re.IGNORECASE
    ),
    re.compile(rf"\btoken limit ?(?:is|of|:)? ?{_W}", re.IGNORECASE),
    re.compile(rf"current length is {_A} while limit is {_W}", re.IGNORECASE),
    re.compile(rf"must (?:have less than|be <=) {_W}", re.IGNORECASE),
    re.compile(rf"in the prompt cannot exceed {_W}", re.IGNORECASE),
)
_ASKED: Final = re.compile(
    rf"(?:requested|resulted in|contains|given:?|n_prompt_tokens\W{{1,5}}|request \()"
    rf" ?(?:about |at least )?{_A}",
    re.IGNORECASE,
)
# Smaller or larger numbers are no sizes of a model's window.
_WINDOW_MIN: Final = 128
_WINDOW_MAX: Final = 100_000_000


def kind_of(said: Complaint) -> ComplaintKind | None:
    """Return what the words complain about, or None if they do not tell."""
    words = _words(said)
    for kind, pattern in WORDINGS:
        is_else = pattern is _WINDOW and _NOT_WINDOW.search(words)
        if pattern.search(words) and not is_else:
            return kind
    return None


def sizes_of(said: Complaint) -> NamedSizes:
    """Return the sizes that a refusal names."""
    words = _words(said)
    found = next(filter(None, (pattern.search(words) for pattern in _SIZES)), None)
    named = found.groupdict() if found else {}
    also = _ASKED.search(words)
    asked = named.get("asked") or (also["asked"] if also else None)
    window = _number(named.get("window"))
    return NamedSizes(
        window=window if _WINDOW_MIN <= window <= _WINDOW_MAX else 0, asked=_number(asked)
    )


def _words(said: Complaint) -> str:
    return f"{said.code}; {said.text}; {said.whole}"


def _number(text: str | None) -> int:
    return int(re.sub(r"\D", "", text) or 0) if text else 0
