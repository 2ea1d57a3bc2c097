"""Holds the words and forms of times in English."""
# ruff: noqa: E501 - each form of the table is one line

import re
from typing import Final

from perdure.domain.schedule.language import Language

_COUNT: Final = (
    r"(?P<count>\d{1,4}|an?|one|two|three|four|five|six|seven|eight|nine|ten|fifteen|twenty|thirty)"
)
_UNIT: Final = r"(?P<unit>seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?)"
_HOUR: Final = (
    r"(?P<time>\d{1,2}(?:[:.]\d\d)? ?(?:am|pm|a\.m\.|p\.m\.|o'clock)?|noon|midday|midnight)"
)
_SURE: Final = r"(?P<time>\d{1,2}[:.]\d\d ?(?:am|pm)?|\d{1,2} ?(?:am|pm|a\.m\.|p\.m\.|o'clock)|noon|midday|midnight)"
_AT: Final = rf"(?:(?:at )?{_HOUR})"
_PART: Final = r"(?P<part>morning|noon|afternoon|evening|night)"
_DAY: Final = r"(?P<day>today|tomorrow|the day after tomorrow|day after tomorrow|tonight)"
_WEEKDAY: Final = r"(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday|mon|tue|tues|wed|thu|thurs|fri|sat|sun)"
_DAYS: Final = rf"(?P<days>{_WEEKDAY}s?(?:(?:, | and |, and | or ){_WEEKDAY}s?)*)"
_SPAN: Final = rf"(?P<first>{_WEEKDAY})s? ?(?:to|through|until|-) ?(?P<last>{_WEEKDAY})s?"
_MONTH: Final = r"(?P<month>january|february|march|april|may|june|july|august|september|october|november|december|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)"
_NTH: Final = r"(?P<nth>\d{1,2}(?:st|nd|rd|th)?|first|last)"
_DATE: Final = (
    rf"(?:{_NTH} (?:of )?{_MONTH}(?:,? (?P<year>\d{{4}}))?"
    rf"|{_MONTH.replace('month', 'month2')} (?:the )?{_NTH.replace('nth', 'nth2')}(?:,? (?P<year2>\d{{4}}))?)"
)

ENGLISH: Final = Language(
    counts={
        "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6,
        "seven": 7, "eight": 8, "nine": 9, "ten": 10, "fifteen": 15, "twenty": 20, "thirty": 30,
    },
    units={"s": 1, "mi": 60, "h": 3_600, "d": 86_400, "w": 604_800},
    days={"today": 0, "tonight": 0, "tomorrow": 1, "the day after tomorrow": 2, "day after tomorrow": 2},
    parts={"morning": 9, "noon": 12, "afternoon": 15, "evening": 18, "night": 21, "tonight": 20},
    clocks={"noon": (12, 0), "midday": (12, 0), "midnight": (0, 0)},
    weekdays=("mon", "tue", "wed", "thu", "fri", "sat", "sun"),
    months=("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    nths={"first": 1, "last": -1},
    forms=(
        ("in", re.compile(rf"in {_COUNT} {_UNIT}(?: from now)?")),
        ("in", re.compile(rf"{_COUNT} {_UNIT} from now")),
        ("half", re.compile(r"in (?:half an hour|a half hour|half a hour)")),
        ("quarter", re.compile(r"in a quarter of an hour")),
        ("hour_half", re.compile(r"in (?:an hour and a half|one and a half hours|one hour and a half)")),
        ("day", re.compile(rf"{_DAY} {_PART}(?: {_AT})?")),
        ("day", re.compile(rf"{_DAY}(?: {_AT})?")),
        ("day", re.compile(rf"{_AT} {_DAY}(?: {_PART})?")),
        ("today_part", re.compile(rf"this {_PART}(?: {_AT})?")),
        ("clock", re.compile(rf"at {_HOUR}(?: (?:in the|at) {_PART})?")),
        ("clock", re.compile(_SURE)),
        ("weekday", re.compile(rf"(?:on |next |this |on next )?(?P<weekday>{_WEEKDAY})(?: {_PART})?(?: {_AT})?")),
        ("weekday", re.compile(rf"{_AT} (?:on |next |this )?(?P<weekday>{_WEEKDAY})")),
        ("next_week", re.compile(rf"next week(?: {_AT})?")),
        ("date", re.compile(rf"(?:on )?(?:the )?{_DATE}(?:,? {_AT})?")),
        ("date", re.compile(rf"{_AT} on (?:the )?{_DATE}")),
        ("each", re.compile(rf"every {_COUNT} {_UNIT}")),
        ("each", re.compile(rf"(?:every|each) {_UNIT}")),
        ("two_days", re.compile(r"every (?:other|second) day")),
        ("half_hourly", re.compile(r"every half hour|every half an hour|half-hourly")),
        ("hourly", re.compile(r"hourly")),
        ("daily", re.compile(rf"(?:every day|each day|daily)(?: {_AT})?")),
        ("daily", re.compile(rf"{_AT} (?:every day|each day|daily)")),
        ("daily", re.compile(rf"(?:every|each) {_PART}(?: {_AT})?")),
        ("daily", re.compile(rf"(?:every night|nightly)(?: {_AT})?")),
        ("weekdays", re.compile(rf"(?:on |every |each )?(?:weekdays?|workdays?|working days?)(?: {_AT})?")),
        ("weekdays", re.compile(rf"{_AT} (?:on |every )(?:weekdays?|workdays?)")),
        ("weekend", re.compile(rf"(?:on |at |every )?(?:weekends?|the weekend)(?: {_AT})?")),
        ("span", re.compile(rf"(?:every |from )?{_SPAN}(?: {_AT})?")),
        ("weekly", re.compile(rf"(?:every |each |weekly on ){_DAYS}(?: {_PART})?(?: {_AT})?")),
        ("weekly", re.compile(rf"{_AT} (?:every |each ){_DAYS}")),
        ("weekly", re.compile(rf"(?:on )?(?P<days>{_WEEKDAY}s(?:(?:, | and |, and ){_WEEKDAY}s)*)(?: {_AT})?")),
        ("monthly", re.compile(rf"(?:every month|each month|monthly) on (?:the )?{_NTH}(?: day)?(?: {_AT})?")),
        ("monthly", re.compile(rf"(?:on )?the {_NTH}(?: day)? of (?:every|each|the) month(?: {_AT})?")),
        ("yearly", re.compile(rf"(?:every year|yearly|each year) on (?:the )?{_DATE}(?: {_AT})?")),
    ),
    fillers=("me", "to", "that", "about", "please"),
    first_fillers=("me", "please"),
)  # fmt: skip
