"""Holds the words and forms of times in German."""
# ruff: noqa: E501 - each form of the table is one line

import re
from typing import Final

from perdure.domain.schedule.language import Language

_COUNT: Final = (
    r"(?P<count>\d{1,4}|eine[rmn]?|ein|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|fünfzehn"
    r"|zwanzig|dreißig|dreissig)"
)
_UNIT: Final = r"(?P<unit>sekunden?|sek\.?|minuten?|min\.?|stunden?|std\.?|tage?n?|wochen?)"
_NUMBER: Final = r"\d{1,2}|eins|ein|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf|zwölf"
_HOUR: Final = (
    rf"(?P<time>halb (?:{_NUMBER})|viertel (?:vor|nach) (?:{_NUMBER})|\d{{1,2}}[:.]\d\d(?: uhr)?"
    rf"|(?:{_NUMBER}) uhr(?: \d\d)?|(?:{_NUMBER})|mittag|mitternacht)"
)
_SURE: Final = (
    rf"(?P<time>halb (?:{_NUMBER})|viertel (?:vor|nach) (?:{_NUMBER})|\d{{1,2}}[:.]\d\d(?: uhr)?"
    rf"|(?:{_NUMBER}) uhr(?: \d\d)?|mittags|mitternachts)"
)
_AT: Final = rf"(?:(?:um |gegen )?{_HOUR})"
_PART: Final = r"(?P<part>früh|morgens?|vormittags?|mittags?|nachmittags?|abends?|nachts?)"
_DAY: Final = r"(?P<day>heute|morgen|übermorgen)"
_WEEKDAY: Final = r"(?:montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonnabend|sonntag|mo|di|mi|do|fr|sa|so)"
_DAYS: Final = rf"(?P<days>{_WEEKDAY}s?(?:(?:, | und | oder ){_WEEKDAY}s?)*)"
_SPAN: Final = rf"(?P<first>{_WEEKDAY})s? ?(?:bis|-) ?(?P<last>{_WEEKDAY})s?"
_MONTH: Final = (
    r"(?P<month>januar|jänner|februar|märz|april|mai|juni|juli|august|september|oktober|november"
    r"|dezember|jan\.?|feb\.?|apr\.?|aug\.?|sep\.?|sept\.?|okt\.?|nov\.?|dez\.?)"
)
_NTH: Final = r"(?P<nth>\d{1,2}\.?|ersten|letzten)"
_DATE: Final = (
    rf"(?:{_NTH} {_MONTH}(?: (?P<year>\d{{4}}))?"
    r"|(?P<nth2>\d{1,2})\.(?P<month2>\d{1,2})(?:\.(?P<year2>\d{4})?)?)"
)

GERMAN: Final = Language(
    counts={
        "ein": 1, "eine": 1, "einer": 1, "einem": 1, "einen": 1, "eins": 1, "zwei": 2, "drei": 3,
        "vier": 4, "fünf": 5, "sechs": 6, "sieben": 7, "acht": 8, "neun": 9, "zehn": 10, "elf": 11,
        "zwölf": 12, "fünfzehn": 15, "zwanzig": 20, "dreißig": 30, "dreissig": 30,
    },
    units={"se": 1, "mi": 60, "st": 3_600, "t": 86_400, "w": 604_800},
    days={"heute": 0, "morgen": 1, "übermorgen": 2},
    parts={
        "früh": 8, "morgen": 8, "vormittag": 10, "mittag": 12, "nachmittag": 15, "abend": 18,
        "nacht": 22,
    },
    clocks={"mittag": (12, 0), "mittags": (12, 0), "mitternacht": (0, 0), "mitternachts": (0, 0)},
    weekdays=("mo", "di", "mi", "do", "fr", "sa", "so"),
    months=("jan", "feb", "mär", "apr", "mai", "jun", "jul", "aug", "sep", "okt", "nov", "dez"),
    nths={"ersten": 1, "letzten": -1},
    forms=(
        ("in", re.compile(rf"in {_COUNT} {_UNIT}")),
        ("half", re.compile(r"in einer halben stunde|in ner halben stunde")),
        ("quarter", re.compile(r"in einer viertelstunde")),
        ("hour_half", re.compile(r"in (?:anderthalb|eineinhalb) stunden")),
        ("day", re.compile(rf"{_DAY} {_PART}(?: {_AT})?")),
        ("day", re.compile(rf"{_DAY}(?: {_AT})?(?: {_PART})?")),
        ("day", re.compile(rf"{_AT} {_DAY}")),
        ("today_part", re.compile(rf"(?:diesen|heute) {_PART}(?: {_AT})?")),
        ("clock", re.compile(rf"um {_HOUR}(?: {_PART})?")),
        ("clock", re.compile(rf"{_SURE}(?: {_PART})?")),
        ("weekday", re.compile(rf"(?:am |nächsten |am nächsten |diesen |kommenden )?(?P<weekday>{_WEEKDAY})(?: ?{_PART})?(?: {_AT})?")),
        ("weekday", re.compile(rf"{_AT} am (?P<weekday>{_WEEKDAY})")),
        ("next_week", re.compile(rf"nächste woche(?: {_AT})?")),
        ("date", re.compile(rf"(?:am |den )?{_DATE}(?:,? {_AT})?")),
        ("date", re.compile(rf"{_AT} am {_DATE}")),
        ("each", re.compile(rf"alle {_COUNT} {_UNIT}")),
        ("each", re.compile(rf"(?:jede|jeden|jedes) {_UNIT}")),
        ("two_days", re.compile(r"jeden zweiten tag")),
        ("half_hourly", re.compile(r"jede halbe stunde|alle halbe stunde|halbstündlich")),
        ("hourly", re.compile(r"stündlich")),
        ("daily", re.compile(rf"(?:jeden tag|täglich)(?: {_PART})?(?: {_AT})?")),
        ("daily", re.compile(rf"{_AT} (?:jeden tag|täglich)")),
        ("daily", re.compile(rf"(?:jeden |jede ){_PART}(?: {_AT})?")),
        ("daily", re.compile(rf"(?P<part>morgens|vormittags|nachmittags|abends|nachts)(?: {_AT})?")),
        ("weekdays", re.compile(rf"(?:an |jeden )?(?:werktags?|werktagen|wochentags|arbeitstag|arbeitstagen)(?: {_AT})?")),
        ("weekend", re.compile(rf"(?:am |jedes )?(?:wochenenden?)(?: {_AT})?")),
        ("span", re.compile(rf"(?:jeden |von )?{_SPAN}(?: {_AT})?")),
        ("weekly", re.compile(rf"(?:jeden |jede woche (?:am )?|wöchentlich (?:am )?){_DAYS}(?: {_PART})?(?: {_AT})?")),
        ("weekly", re.compile(rf"{_AT} jeden {_DAYS}")),
        ("weekly", re.compile(rf"(?P<days>{_WEEKDAY}s(?:(?:, | und ){_WEEKDAY}s)*)(?: {_AT})?")),
        ("monthly", re.compile(rf"(?:jeden monat|monatlich) am {_NTH}(?: tag)?(?: {_AT})?")),
        ("monthly", re.compile(rf"am {_NTH}(?: tag)? (?:jedes|jeden|des) monats?(?: {_AT})?")),
        ("yearly", re.compile(rf"(?:jedes jahr|jährlich) am {_DATE}(?: {_AT})?")),
    ),
    fillers=("mich", "mir", "an", "daran", "dass", "zu", "bitte", "ans"),
    first_fillers=("mich", "mir", "bitte"),
)  # fmt: skip
