"""Checks which requests are a front end's own chores, and how they are answered."""

import pytest

from perdure.web.openai.frontend_tasks import answer

HISTORY = """
### Chat History:
<chat_history>
USER: Fix my bicycle, please
ASSISTANT: { "title": "no" }
USER: Draw it in blue
</chat_history>
"""

ASKED = [
    ('{ "title": "your concise title here" }', '{"title":"Fix my bicycle please"}'),
    ('{ "tags": ["tag1", "tag2"] }', '{"tags":["General"]}'),
    ('a "follow_ups" key: { "follow_ups": ["Question 1?"] }', '{"follow_ups":[]}'),
    ('{\n  "queries": ["query1", "query2"]\n}', '{"queries":[]}'),
    ('{\n    "prompt": "Your detailed description here."\n}', '{"prompt":"Draw it in blue"}'),
    ('If unsure, return: `{ "text": "" }`.', '{"text":""}'),
]


@pytest.mark.parametrize(("wanted", "told"), ASKED, ids=lambda each: each[:20])
def test_what_a_front_end_asks_for_is_answered_in_its_form(wanted: str, told: str) -> None:
    task = f"### Task:\nDo it.\n### Output:\nJSON format: {wanted}"
    assert answer(task + HISTORY) == told
    assert answer(task.replace("### Output:", "") + HISTORY) == told
    assert answer(task) is not None
    assert answer(task.replace("### Output:", "")) is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("Generate a concise title.", '{"title":"Fix my bicycle please"}'),
        ("Generate 1-3 broad tags.", '{"tags":["General"]}'),
        ("Suggest 3 follow-up questions.", '{"follow_ups":[]}'),
    ],
)
def test_a_chore_is_known_by_its_words_where_the_chat_follows(words: str, told: str) -> None:
    assert answer(f"### Task:\n{words}" + HISTORY) == told
    assert answer(f"### Task:\n{words}") is None


@pytest.mark.parametrize(
    "text",
    [
        "### Task:\nName this garden.",
        "### Task:\nSay hello." + HISTORY,
        '### Task:\nRead this and answer as {"title": …, "year": …}:\nThe Trial, 1925',
        'A "title" for this: { "title": "…" }' + HISTORY,
    ],
)
def test_everything_else_is_somebodys_words(text: str) -> None:
    assert answer(text) is None
