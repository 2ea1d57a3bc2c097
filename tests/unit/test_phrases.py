"""Checks which times are understood in plain words, in English and German."""

from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

import pytest

from perdure.domain.errors import Rejected
from perdure.domain.schedule.phrases import (
    EXAMPLES,
    nearest_phrase,
    now_in,
    read_phrase,
    split_phrase,
)
from perdure.domain.schedule.reading import WhenGiven, nearest_cron, rule_of
from perdure.domain.schedule.recurrence import Cron, Every, Once, Recurrence, Timing, next_due

ZONE: Final = "Europe/Berlin"
# A Thursday, at noon in Berlin.
NOW: Final = now_in(ZONE, int(datetime(2026, 6, 11, 10, tzinfo=UTC).timestamp() * 1000))
ENGLISH_TIMES: Final = (
    ("in 10 minutes", "2026-06-11 12:10"),
    ("in an hour", "2026-06-11 13:00"),
    ("in one hour", "2026-06-11 13:00"),
    ("in 2 hours", "2026-06-11 14:00"),
    ("in 90 seconds", "2026-06-11 12:01:30"),
    ("in three days", "2026-06-14 12:00"),
    ("in 2 weeks", "2026-06-25 12:00"),
    ("in a week", "2026-06-18 12:00"),
    ("10 minutes from now", "2026-06-11 12:10"),
    ("in half an hour", "2026-06-11 12:30"),
    ("in a quarter of an hour", "2026-06-11 12:15"),
    ("in an hour and a half", "2026-06-11 13:30"),
    ("in 20 mins", "2026-06-11 12:20"),
    ("in 3 hrs", "2026-06-11 15:00"),
    ("in thirty minutes", "2026-06-11 12:30"),
    ("at 5pm", "2026-06-11 17:00"),
    ("at 5 pm", "2026-06-11 17:00"),
    ("at 17:30", "2026-06-11 17:30"),
    ("at 17.30", "2026-06-11 17:30"),
    ("5pm", "2026-06-11 17:00"),
    ("5:15 pm", "2026-06-11 17:15"),
    ("17:30", "2026-06-11 17:30"),
    ("noon", "2026-06-12 12:00"),
    ("midnight", "2026-06-12 00:00"),
    ("at noon", "2026-06-12 12:00"),
    ("at midnight", "2026-06-12 00:00"),
    ("at 9", "2026-06-12 09:00"),
    ("at 8 o'clock", "2026-06-12 08:00"),
    ("at 9 in the evening", "2026-06-11 21:00"),
    ("at 7 in the morning", "2026-06-12 07:00"),
    ("at 12am", "2026-06-12 00:00"),
    ("at 12pm", "2026-06-12 12:00"),
    ("tomorrow", "2026-06-12 09:00"),
    ("tomorrow at 9", "2026-06-12 09:00"),
    ("tomorrow at 9:30", "2026-06-12 09:30"),
    ("tomorrow at 5pm", "2026-06-12 17:00"),
    ("tomorrow morning", "2026-06-12 09:00"),
    ("tomorrow afternoon", "2026-06-12 15:00"),
    ("tomorrow evening", "2026-06-12 18:00"),
    ("tomorrow evening at 8", "2026-06-12 20:00"),
    ("tomorrow night", "2026-06-12 21:00"),
    ("the day after tomorrow", "2026-06-13 09:00"),
    ("the day after tomorrow at 10", "2026-06-13 10:00"),
    ("today at 18:00", "2026-06-11 18:00"),
    ("tonight", "2026-06-11 20:00"),
    ("tonight at 8", "2026-06-11 20:00"),
    ("tonight at 22:15", "2026-06-11 22:15"),
    ("this evening", "2026-06-11 18:00"),
    ("this afternoon at 4", "2026-06-11 16:00"),
    ("9am tomorrow", "2026-06-12 09:00"),
    ("at 5pm tomorrow", "2026-06-12 17:00"),
    ("at 8 tomorrow morning", "2026-06-12 08:00"),
    ("monday", "2026-06-15 09:00"),
    ("on monday", "2026-06-15 09:00"),
    ("next monday", "2026-06-15 09:00"),
    ("this friday", "2026-06-12 09:00"),
    ("next friday at 14:00", "2026-06-12 14:00"),
    ("on friday at 5pm", "2026-06-12 17:00"),
    ("monday at 9:30", "2026-06-15 09:30"),
    ("friday evening", "2026-06-12 18:00"),
    ("on sunday morning at 10", "2026-06-14 10:00"),
    ("at 9 on tuesday", "2026-06-16 09:00"),
    ("wed at 8", "2026-06-17 08:00"),
    ("next week", "2026-06-15 09:00"),
    ("next week at 10", "2026-06-15 10:00"),
    ("december 24", "2026-12-24 09:00"),
    ("december 24 at 18:00", "2026-12-24 18:00"),
    ("24 december", "2026-12-24 09:00"),
    ("24th of december", "2026-12-24 09:00"),
    ("the 24th of december at 6pm", "2026-12-24 18:00"),
    ("on 1 january", "2027-01-01 09:00"),
    ("january 1st 2027", "2027-01-01 09:00"),
    ("1 may 2027 at 12:00", "2027-05-01 12:00"),
    ("at 18:00 on 24 december", "2026-12-24 18:00"),
    ("2026-12-24", "2026-12-24 09:00"),
    ("2026-12-24 18:00", "2026-12-24 18:00"),
    ("2026-12-24T18:00", "2026-12-24 18:00"),
    ("2026-12-24T18:00:30", "2026-12-24 18:00:30"),
    ("2026-12-24T18:00Z", "2026-12-24 19:00"),
    ("2026-12-24T18:00+05:30", "2026-12-24 13:30"),
    ("every minute", "every 60 s"),
    ("every 15 minutes", "every 900 s"),
    ("every five minutes", "every 300 s"),
    ("every hour", "every 3600 s"),
    ("every 2 hours", "every 7200 s"),
    ("each hour", "every 3600 s"),
    ("hourly", "every 3600 s"),
    ("every half hour", "every 1800 s"),
    ("every day", "every 86400 s"),
    ("daily", "0 9 * * *"),
    ("every day at 9", "0 9 * * *"),
    ("daily at 7:30", "30 7 * * *"),
    ("every day at 6pm", "0 18 * * *"),
    ("at 9 every day", "0 9 * * *"),
    ("every morning", "0 9 * * *"),
    ("every morning at 7", "0 7 * * *"),
    ("every evening", "0 18 * * *"),
    ("every evening at 8", "0 20 * * *"),
    ("every night", "0 21 * * *"),
    ("nightly at 23:00", "0 23 * * *"),
    ("every other day", "every 172800 s"),
    ("every 3 days", "every 259200 s"),
    ("every week", "every 604800 s"),
    ("every weekday", "0 9 * * 1-5"),
    ("every weekday at 9", "0 9 * * 1-5"),
    ("every weekday at 9am", "0 9 * * 1-5"),
    ("weekdays at 9am", "0 9 * * 1-5"),
    ("on weekdays at 8:30", "30 8 * * 1-5"),
    ("at 9 on weekdays", "0 9 * * 1-5"),
    ("every workday at 8", "0 8 * * 1-5"),
    ("every weekend", "0 9 * * 6,7"),
    ("weekends at 10", "0 10 * * 6,7"),
    ("on weekends at 11am", "0 11 * * 6,7"),
    ("every monday", "0 9 * * 1"),
    ("every monday at 8", "0 8 * * 1"),
    ("every monday morning", "0 9 * * 1"),
    ("every mon at 8", "0 8 * * 1"),
    ("mondays at 9", "0 9 * * 1"),
    ("mondays and thursdays at 10", "0 10 * * 1,4"),
    ("on tuesdays at 7pm", "0 19 * * 2"),
    ("every monday, wednesday and friday at 8", "0 8 * * 1,3,5"),
    ("every saturday and sunday at 10", "0 10 * * 6,7"),
    ("at 8 every monday", "0 8 * * 1"),
    ("monday to friday at 7", "0 7 * * 1,2,3,4,5"),
    ("every monday to friday at 7:15", "15 7 * * 1,2,3,4,5"),
    ("from monday through thursday at 9", "0 9 * * 1,2,3,4"),
    ("friday to monday at 9", "0 9 * * 5,6,7,1"),
    ("every month on the 1st", "0 9 1 * *"),
    ("every month on the 15th at 10", "0 10 15 * *"),
    ("monthly on the 3rd at 9", "0 9 3 * *"),
    ("on the 1st of every month", "0 9 1 * *"),
    ("the last day of every month at 18:00", "0 18 L * *"),
    ("on the last day of the month", "0 9 L * *"),
    ("every year on december 24 at 18:00", "0 18 24 12 *"),
    ("yearly on 1 january", "0 9 1 1 *"),
)
GERMAN_TIMES: Final = (
    ("in 10 minuten", "2026-06-11 12:10"),
    ("in einer stunde", "2026-06-11 13:00"),
    ("in 2 stunden", "2026-06-11 14:00"),
    ("in drei tagen", "2026-06-14 12:00"),
    ("in einer woche", "2026-06-18 12:00"),
    ("in 90 sekunden", "2026-06-11 12:01:30"),
    ("in einer halben stunde", "2026-06-11 12:30"),
    ("in einer viertelstunde", "2026-06-11 12:15"),
    ("in anderthalb stunden", "2026-06-11 13:30"),
    ("um 17 uhr", "2026-06-11 17:00"),
    ("um 17:30 uhr", "2026-06-11 17:30"),
    ("um 17:30", "2026-06-11 17:30"),
    ("um 8", "2026-06-12 08:00"),
    ("17 uhr", "2026-06-11 17:00"),
    ("9 uhr", "2026-06-12 09:00"),
    ("um halb acht", "2026-06-12 07:30"),
    ("um viertel nach 7", "2026-06-12 07:15"),
    ("um viertel vor neun", "2026-06-12 08:45"),
    ("um 8 uhr abends", "2026-06-11 20:00"),
    ("um 8 uhr morgens", "2026-06-12 08:00"),
    ("mittags", "2026-06-12 12:00"),
    ("um mitternacht", "2026-06-12 00:00"),
    ("morgen", "2026-06-12 09:00"),
    ("morgen um 9", "2026-06-12 09:00"),
    ("morgen um 9 uhr", "2026-06-12 09:00"),
    ("morgen um 9 uhr 30", "2026-06-12 09:30"),
    ("morgen früh", "2026-06-12 08:00"),
    ("morgen früh um 7", "2026-06-12 07:00"),
    ("morgen mittag", "2026-06-12 12:00"),
    ("morgen abend", "2026-06-12 18:00"),
    ("morgen abend um acht", "2026-06-12 20:00"),
    ("übermorgen", "2026-06-13 09:00"),
    ("übermorgen um 10 uhr", "2026-06-13 10:00"),
    ("heute um 20 uhr", "2026-06-11 20:00"),
    ("heute abend", "2026-06-11 18:00"),
    ("heute abend um 8", "2026-06-11 20:00"),
    ("heute nachmittag", "2026-06-11 15:00"),
    ("um 9 uhr morgen", "2026-06-12 09:00"),
    ("montag", "2026-06-15 09:00"),
    ("am montag", "2026-06-15 09:00"),
    ("am montag um 9", "2026-06-15 09:00"),
    ("nächsten montag", "2026-06-15 09:00"),
    ("nächsten freitag um 14 uhr", "2026-06-12 14:00"),
    ("am freitag abend", "2026-06-12 18:00"),
    ("freitagabend um 8", "2026-06-12 20:00"),
    ("am sonntag vormittag um 10", "2026-06-14 10:00"),
    ("um 9 uhr am dienstag", "2026-06-16 09:00"),
    ("nächste woche", "2026-06-15 09:00"),
    ("am 24. dezember", "2026-12-24 09:00"),
    ("am 24. dezember um 18 uhr", "2026-12-24 18:00"),
    ("24. dezember 2026", "2026-12-24 09:00"),
    ("am 24.12.", "2026-12-24 09:00"),
    ("am 24.12. um 18:00", "2026-12-24 18:00"),
    ("24.12.2026", "2026-12-24 09:00"),
    ("am 24.12.2026 um 18 uhr", "2026-12-24 18:00"),
    ("am 1. januar", "2027-01-01 09:00"),
    ("am 3. märz um 8 uhr", "2027-03-03 08:00"),
    ("jede minute", "every 60 s"),
    ("alle 15 minuten", "every 900 s"),
    ("alle fünf minuten", "every 300 s"),
    ("jede stunde", "every 3600 s"),
    ("alle 2 stunden", "every 7200 s"),
    ("stündlich", "every 3600 s"),
    ("jede halbe stunde", "every 1800 s"),
    ("jeden tag", "every 86400 s"),
    ("jeden tag um 9", "0 9 * * *"),
    ("täglich", "0 9 * * *"),
    ("täglich um 7:30 uhr", "30 7 * * *"),
    ("um 9 uhr jeden tag", "0 9 * * *"),
    ("jeden morgen", "0 8 * * *"),
    ("jeden morgen um 7", "0 7 * * *"),
    ("jeden abend um 8", "0 20 * * *"),
    ("jede nacht", "0 22 * * *"),
    ("abends um 8", "0 20 * * *"),
    ("morgens um 7", "0 7 * * *"),
    ("jeden zweiten tag", "every 172800 s"),
    ("alle 3 tage", "every 259200 s"),
    ("werktags", "0 9 * * 1-5"),
    ("werktags um 9 uhr", "0 9 * * 1-5"),
    ("jeden werktag um 8", "0 8 * * 1-5"),
    ("an werktagen um 8:30", "30 8 * * 1-5"),
    ("wochentags um 9", "0 9 * * 1-5"),
    ("am wochenende", "0 9 * * 6,7"),
    ("am wochenende um 10", "0 10 * * 6,7"),
    ("jedes wochenende um 11 uhr", "0 11 * * 6,7"),
    ("jeden montag", "0 9 * * 1"),
    ("jeden montag um 9 uhr", "0 9 * * 1"),
    ("jeden montag und donnerstag um 10 uhr", "0 10 * * 1,4"),
    ("jeden montag, mittwoch und freitag um 8", "0 8 * * 1,3,5"),
    ("montags um 8 uhr", "0 8 * * 1"),
    ("montags und donnerstags um 10", "0 10 * * 1,4"),
    ("jeden samstag abend um 8", "0 20 * * 6"),
    ("um 8 uhr jeden montag", "0 8 * * 1"),
    ("montag bis freitag um 7 uhr", "0 7 * * 1,2,3,4,5"),
    ("von montag bis freitag um 7:15", "15 7 * * 1,2,3,4,5"),
    ("jeden monat am 1.", "0 9 1 * *"),
    ("jeden monat am 15. um 10 uhr", "0 10 15 * *"),
    ("monatlich am 3. um 9 uhr", "0 9 3 * *"),
    ("am 1. jedes monats", "0 9 1 * *"),
    ("am letzten jedes monats um 18 uhr", "0 18 L * *"),
    ("am letzten tag des monats", "0 9 L * *"),
    ("jedes jahr am 24. dezember um 18 uhr", "0 18 24 12 *"),
    ("jährlich am 1. januar", "0 9 1 1 *"),
)


def words(rule: Recurrence) -> str:
    """Return a rule as the tables have it."""
    match rule:
        case Cron(expression=expression):
            return expression
        case Every(seconds=seconds):
            return f"every {seconds} s"
        case Once(at=at):
            then = datetime.fromtimestamp(at / 1000, ZoneInfo(ZONE))
            return f"{then:%Y-%m-%d %H:%M:%S}".removesuffix(":00")


def test_there_are_two_hundred_times() -> None:
    assert len(ENGLISH_TIMES) + len(GERMAN_TIMES) >= 200


@pytest.mark.parametrize(("text", "meaning"), [*ENGLISH_TIMES, *GERMAN_TIMES])
def test_a_time_in_plain_words_is_understood(text: str, meaning: str) -> None:
    assert words(read_phrase(text, NOW)) == meaning
    assert words(read_phrase(f" {text.upper()}. ", NOW)) == meaning


@pytest.mark.parametrize("text", EXAMPLES)
def test_what_is_advertised_is_understood_and_lies_ahead(text: str) -> None:
    rule = read_phrase(text, NOW)
    due = next_due(Timing(rule, ZONE, NOW.at), after=NOW.at)
    assert due is not None


@pytest.mark.parametrize(
    ("text", "meaning", "rest"),
    [
        ("me in 20 minutes to call mom", "2026-06-11 12:20", "call mom"),
        ("me to call mom at 5pm", "2026-06-11 17:00", "call mom"),
        ("me at 5 pm to go", "2026-06-11 17:00", "go"),
        ("me every monday at 9 to send the report", "0 9 * * 1", "send the report"),
        ("tomorrow buy milk", "2026-06-12 09:00", "buy milk"),
        ("mich morgen um 9 Uhr an den Anruf", "2026-06-12 09:00", "den Anruf"),
        ("mich um 17 Uhr, die Wäsche zu holen", "2026-06-11 17:00", "die Wäsche zu holen"),
        ("an den Müll jeden Montag um 7", "0 7 * * 1", "den Müll"),
    ],
)
def test_a_time_is_found_before_or_after_what_is_to_be_done(
    text: str, meaning: str, rest: str
) -> None:
    found = split_phrase(text, NOW)
    assert found is not None
    assert (words(found[0]), found[1]) == (meaning, rest)


def test_a_text_without_a_time_has_none() -> None:
    assert split_phrase("buy 5 apples", NOW) is None
    assert split_phrase("", NOW) is None


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("evry dai at 9", "every day at 09:00"),
        ("tomorow at 9", "tomorrow at 9"),
        ("every mondey at 8", "every monday at 8"),
        ("jeden mondtag um 9", "jeden montag um 9"),
        ("at 25:00", "at 17:30"),
    ],
)
def test_a_mistyped_time_is_refused_with_the_nearest_form(text: str, near: str) -> None:
    assert nearest_phrase(text, NOW) == near
    with pytest.raises(Rejected, match="no time that is understood here") as refused:
        read_phrase(text, NOW)
    assert near in str(refused.value)


@pytest.mark.parametrize(
    ("expression", "near"),
    [
        ("0 25 * * *", "0 23 * * *"),
        ("0 9 * *", "0 9 * * *"),
        ("0 0 9 * * *", "0 9 * * *"),
        ("0 9 ? * MON", "0 9 * * MON"),
        ("99 9 * * 1-5", "59 9 * * 1-5"),
        ("0 9 * * MONDAY", "0 9 * * *"),
        ("whenever", "0 9 * * *"),
    ],
)
def test_a_wrong_expression_is_refused_with_the_nearest_form_and_its_next_times(
    expression: str, near: str
) -> None:
    assert nearest_cron(expression) == near
    with pytest.raises(Rejected) as refused:
        rule_of(WhenGiven(cron=expression), zone=ZONE, now=NOW.at)
    assert f"the nearest valid form is {near!r}, which would run at" in str(refused.value)
    assert str(refused.value).count("2026-") >= 3


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (WhenGiven(), "exactly one of"),
        (WhenGiven(cron="* * * * *", when="hourly"), "and not cron and when"),
        (WhenGiven(at="2020-01-01T00:00"), "lies in the past"),
        (WhenGiven(at="soon"), "nearest valid form"),
        (WhenGiven(every_s=0), "nearest valid form"),
    ],
)
def test_other_wrong_times_say_what_is_wrong(given: WhenGiven, told: str) -> None:
    with pytest.raises(Rejected, match=told):
        rule_of(given, zone=ZONE, now=NOW.at)


def test_an_unknown_zone_is_named() -> None:
    with pytest.raises(Rejected, match="no time zone 'Mars/Base'"):
        rule_of(WhenGiven(cron="0 9 * * *"), zone="Mars/Base", now=NOW.at)
