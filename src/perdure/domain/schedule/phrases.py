"""Reads times in plain words, in English and German.

`read_phrase` reads a text that is a time as a whole; `split_phrase` finds the time at the beginning
or the end of a text that also says what is to be done then. One grammar serves commands, the tool
and the API, so what one of them advertises works everywhere.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

from perdure.domain.errors import Rejected
from perdure.domain.schedule.language import Language
from perdure.domain.schedule.phrases_de import GERMAN
from perdure.domain.schedule.phrases_en import ENGLISH
from perdure.domain.schedule.recurrence import (
    INVALID,
    Once,
    Recurrence,
    instant_of,
    known_zone,
    read_cron,
    read_every,
)

LANGUAGES: Final = (ENGLISH, GERMAN)
# The hour at which something happens whose time nobody has named.
DEFAULT_HOUR: Final = 9
# No time has more words.
WORDS_MAX: Final = 12
TEXT_MAX: Final = 200
_ISO: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[ t](\d{1,2})[:.](\d\d)(?:[:.](\d\d)(?:\.\d{1,9})?)?)?"
    r" ?(z|[+-]\d\d:?\d\d)?"
)
_CLOCK: Final = re.compile(
    r"(\d{1,2})(?:[:.](\d\d))? ?(am|pm|a\.m\.|p\.m\.|o'clock|uhr)?(?: (\d\d))?"
)


class Now(NamedTuple):
    """Holds the present as a phrase needs it: the instant, its local time, and the zone."""

    at: int
    local: datetime
    zone: str


class Spoken(NamedTuple):
    """Holds a form that fits: the language, and the words that the form names."""

    language: Language
    words: Mapping[str, str | None]

    def get(self, name: str) -> str:
        """Return a word of the form, or an empty string."""
        return self.words.get(name) or self.words.get(f"{name}2") or ""


def now_in(zone: str, at: int) -> Now:
    """Return the present in a zone."""
    local = datetime.fromtimestamp(at / 1000, known_zone(zone)).replace(tzinfo=None)
    return Now(at, local, zone)


def read_phrase(text: str, now: Now) -> Recurrence:
    """Return when this text says. Raises `Rejected` if it is no time, with the nearest form that
    is."""
    rule = _understood(text, now)
    if rule is not None:
        return rule
    near = nearest_phrase(text, now)
    raise Rejected(
        f"{text.strip()[:80]!r} is no time that is understood here; the nearest valid form is "
        f"{near!r}",
        code=INVALID,
    )


def split_phrase(text: str, now: Now) -> tuple[Recurrence, str] | None:
    """Return the time at the beginning or the end of a text, and the rest of it. Returns None if
    there is no time in these places."""
    words = text.split()
    while words and words[0].lower() in _first_fillers():
        words = words[1:]
    limit = min(len(words), WORDS_MAX)
    for count in range(limit, 0, -1):
        rule = _understood(" ".join(words[:count]), now)
        if rule is not None:
            return rule, _rest(words[count:])
    for count in range(limit, 0, -1):
        rule = _understood(" ".join(words[-count:]), now)
        if rule is not None:
            return rule, _rest(words[:-count])
    return None


def nearest_phrase(text: str, now: Now) -> str:
    """Return the form of a time that is most like this text."""
    from difflib import get_close_matches  # noqa: PLC0415 - few times are mistyped

    words = _plain(text)[:TEXT_MAX].split()[:WORDS_MAX]
    mended = [next(iter(get_close_matches(each, _vocabulary(), 1, 0.7)), each) for each in words]
    kept = [each for each in mended if each in _vocabulary() or any(map(str.isdigit, each))]
    for candidate in (mended, kept):
        phrase = " ".join(candidate)
        if phrase and _understood(phrase, now) is not None:
            return phrase
    known = get_close_matches(" ".join(words), EXAMPLES, 1, 0.3)
    return known[0] if known else EXAMPLES[0]


# Forms that are shown to people who wrote none, and that the tests read.
EXAMPLES: Final = (
    "every day at 09:00", "every weekday at 09:00", "every monday at 09:00", "in 20 minutes",
    "tomorrow at 09:00", "every 15 minutes", "every month on the 1st at 09:00",
    "next friday at 14:00", "at 17:30", "on 24 december at 18:00",
    "jeden Tag um 9 Uhr", "jeden Montag um 9 Uhr", "in 20 Minuten", "morgen um 9 Uhr",
    "alle 15 Minuten", "werktags um 9 Uhr", "am 24. Dezember um 18 Uhr",
)  # fmt: skip


def _understood(text: str, now: Now) -> Recurrence | None:
    plain = _plain(text)
    if not plain or len(plain) > TEXT_MAX:
        return None
    iso = _ISO.fullmatch(plain)
    if iso is not None:
        return _from_iso(iso, now)
    for language in LANGUAGES:
        for name, form in language.forms:
            found = form.fullmatch(plain)
            rule = _FORMS[name](Spoken(language, found.groupdict()), now) if found else None
            if rule is not None:
                return rule
    return None


def _plain(text: str) -> str:
    return " ".join(text.lower().strip(" ,.!?").split())


def _rest(words: list[str]) -> str:
    """Return what is to be done, without the words that join it to the time."""
    fillers = {each for language in LANGUAGES for each in language.fillers}
    while words and words[0].lower().strip(",:") in {*fillers, ""}:
        words = words[1:]
    return " ".join(words).strip(" ,")


@lru_cache(maxsize=1)
def _first_fillers() -> frozenset[str]:
    return frozenset(each for language in LANGUAGES for each in language.first_fillers)


@lru_cache(maxsize=1)
def _vocabulary() -> frozenset[str]:
    forms = [form.pattern for language in LANGUAGES for _, form in language.forms]
    return frozenset(re.findall(r"[a-zäöüß]{2,}", " ".join([*forms, *map(str.lower, EXAMPLES)])))


def _from_iso(found: re.Match[str], now: Now) -> Recurrence | None:
    year, month, day, hour, minute, second, offset = found.groups()
    try:
        local = datetime(  # noqa: DTZ001 - the zone is added below
            int(year), int(month), int(day), int(hour or DEFAULT_HOUR), int(minute or 0),
            int(second or 0),
        )  # fmt: skip
    except ValueError:
        return None
    if offset is None:
        return Once(instant_of(local, known_zone(now.zone)))
    words = "+00:00" if offset == "z" else f"{offset[:3]}:{offset[-2:]}"
    return Once(int(datetime.fromisoformat(f"{local.isoformat()}{words}").timestamp() * 1000))


def _clock(spoken: Spoken) -> tuple[int, int] | None:
    """Return the hour and minute that are named, by a time or by a part of the day. Raises
    `ValueError` if there is no such time."""
    words, language = spoken.get("time"), spoken.language
    part = language.part_of(spoken.get("part")) if spoken.get("part") else None
    if not words:
        return None if part is None else (part, 0)
    hour, minute = _named_clock(words, language)
    is_later = part is not None and part >= 12 and hour < 12
    return (hour + 12 if is_later and words not in language.clocks else hour), minute


def _named_clock(words: str, language: Language) -> tuple[int, int]:
    if words in language.clocks:
        return language.clocks[words]
    if words.startswith("halb "):
        return (language.count_of(words[5:]) - 1) % 24, 30
    if words.startswith("viertel "):
        _, side, named = words.split()
        before = side == "vor"
        return (language.count_of(named) - before) % 24, 45 if before else 15
    found = _CLOCK.fullmatch(words)
    if found is None:
        return language.count_of(words.split(maxsplit=1)[0]), int(words.split()[2]) if words.count(
            " "
        ) > 1 else 0
    number, minute, mark, after = found.groups()
    hour = int(number)
    if mark and mark[0] in "ap":
        if not 1 <= hour <= 12:
            raise ValueError(words)
        hour = hour % 12 + (12 if mark[0] == "p" else 0)
    return hour, int(minute or after or 0)


def _once(local: datetime, now: Now) -> Recurrence:
    return Once(instant_of(local, known_zone(now.zone)))


def _on(day: datetime, clock: tuple[int, int] | None) -> datetime:
    hour, minute = clock or (DEFAULT_HOUR, 0)
    return day.replace(hour=hour, minute=minute, second=0, microsecond=0)


def _in(spoken: Spoken, now: Now) -> Recurrence | None:
    count = spoken.language.count_of(spoken.get("count"))
    return Once(now.at + count * spoken.language.seconds_of(spoken.get("unit")) * 1000)


def _after(seconds: int) -> Callable[[Spoken, Now], Recurrence | None]:
    return lambda _, now: Once(now.at + seconds * 1000)


def _day(spoken: Spoken, now: Now) -> Recurrence | None:
    word = spoken.get("day")
    clock = _clock(spoken)
    if word == "tonight":
        hour, minute = clock or (spoken.language.parts["tonight"], 0)
        clock = (hour + 12, minute) if 5 <= hour < 12 else (hour, minute)
    day = now.local + timedelta(days=spoken.language.days[word])
    if clock is None and not spoken.language.days[word]:
        return None
    return _once(_on(day, clock), now)


def _today_part(spoken: Spoken, now: Now) -> Recurrence | None:
    return _once(_on(now.local, _clock(spoken)), now)


def _at(spoken: Spoken, now: Now) -> Recurrence | None:
    """Return the next instant at which a clock shows this."""
    local = _on(now.local, _clock(spoken))
    return _once(local if local > now.local else local + timedelta(days=1), now)


def _weekday(spoken: Spoken, now: Now) -> Recurrence | None:
    wanted = spoken.language.weekday_of(spoken.get("weekday"))
    local = _on(now.local + timedelta(days=(wanted - now.local.isoweekday()) % 7), _clock(spoken))
    return _once(local if local > now.local else local + timedelta(days=7), now)


def _next_week(spoken: Spoken, now: Now) -> Recurrence | None:
    return _once(_on(now.local + timedelta(days=8 - now.local.isoweekday()), _clock(spoken)), now)


def _date(spoken: Spoken, now: Now) -> Recurrence | None:
    """Return the instant of a date. Without a year it is the next one that comes."""
    month = spoken.language.month_of(spoken.get("month"))
    day, year = spoken.language.nth_of(spoken.get("nth")), spoken.get("year")
    first = int(year) if year else now.local.year
    for each in range(first, first + (1 if year else 9)):
        try:
            local = _on(now.local.replace(year=each, month=month, day=day), _clock(spoken))
        except ValueError:
            continue  # the 29th of February
        if year or local > now.local:
            return _once(local, now)
    return None


def _each(spoken: Spoken, _: Now) -> Recurrence | None:
    count = spoken.language.count_of(spoken.get("count")) if spoken.get("count") else 1
    seconds = spoken.language.seconds_of(spoken.get("unit"))
    return read_every(count * seconds) if count else None


def _recurring(fields: Callable[[Spoken], str]) -> Callable[[Spoken, Now], Recurrence | None]:
    """Return the form that recurs on the days which `fields` says: day, month, weekday."""

    def form(spoken: Spoken, _: Now) -> Recurrence | None:
        hour, minute = _clock(spoken) or (DEFAULT_HOUR, 0)
        return read_cron(f"{minute} {hour} {fields(spoken)}")

    return form


def _listed(spoken: Spoken) -> str:
    names = re.findall(r"[a-zäöü]+", spoken.get("days"))
    known = [each for each in names if each not in ("and", "or", "und", "oder")]
    return f"* * {','.join(map(str, sorted({spoken.language.weekday_of(each) for each in known})))}"


def _spanned(spoken: Spoken) -> str:
    first = spoken.language.weekday_of(spoken.get("first"))
    last = spoken.language.weekday_of(spoken.get("last"))
    count = (last - first) % 7 + 1
    return f"* * {','.join(str((first - 1 + each) % 7 + 1) for each in range(count))}"


def _nth_day(spoken: Spoken) -> str:
    day = spoken.language.nth_of(spoken.get("nth"))
    return "L * *" if day < 0 else f"{day} * *"


def _day_of_year(spoken: Spoken) -> str:
    month = spoken.language.month_of(spoken.get("month"))
    return f"{spoken.language.nth_of(spoken.get('nth'))} {month} *"


def _safely(
    form: Callable[[Spoken, Now], Recurrence | None],
) -> Callable[[Spoken, Now], Recurrence | None]:
    """Return the form, which finds no time in words such as "25:99"."""

    def safe(spoken: Spoken, now: Now) -> Recurrence | None:
        try:
            return form(spoken, now)
        except (ValueError, KeyError, OverflowError, StopIteration, Rejected):
            return None

    return safe


_FORMS: Final = {
    name: _safely(form)
    for name, form in {
        "in": _in,
        "half": _after(1_800),
        "quarter": _after(900),
        "hour_half": _after(5_400),
        "day": _day,
        "today_part": _today_part,
        "clock": _at,
        "weekday": _weekday,
        "next_week": _next_week,
        "date": _date,
        "each": _each,
        "half_hourly": lambda _, __: read_every(1_800),
        "two_days": lambda _, __: read_every(172_800),
        "hourly": lambda _, __: read_every(3_600),
        "daily": _recurring(lambda _: "* * *"),
        "weekdays": _recurring(lambda _: "* * 1-5"),
        "weekend": _recurring(lambda _: "* * 6,7"),
        "span": _recurring(_spanned),
        "weekly": _recurring(_listed),
        "monthly": _recurring(_nth_day),
        "yearly": _recurring(_day_of_year),
    }.items()
}
