"""Checks in a real browser that the page stays light, and what it offers around messages."""

import json

import pytest
from tests.chat_window import Chat

# Draws the end of a conversation of so many messages, lets its last answer grow, and reads upwards.
LONG = """async (count) => {
    const { Transcript } = await import('/static/transcript.js');
    const { Log } = await import('/static/log.js');
    const { rowsOf } = await import('/static/rows.js');
    const { Span, partOf } = await import('/static/span.js');
    const { ready } = await import('/static/blocks/text.js');
    await ready();
    const root = document.createElement('div');
    document.body.append(root);
    const [transcript, span, log] = [new Transcript(), new Span(), new Log(root, {})];
    const messages = Array.from({ length: count }, (_, n) => ({
        id: `m${n}`, role: n % 2 ? 'assistant' : 'user', text: `line ${n}`, at: n,
        turn: `t${n >> 1}`, ...(n % 2 ? { outcome: 'done' } : {}),
    }));
    transcript.load({ session: 's', messages, next: null }, transcript.tick);
    transcript.apply('message', { id: 'u', role: 'user', turn: 't', text: 'more' });
    transcript.apply('state', { state: 'running', session: 's', head: 't', turn: 't', queued: 0 });
    const part = () => partOf(transcript, span.of(transcript.entries));
    const draw = () => log.draw(rowsOf(part(), []));
    draw();
    const changes = [];
    const seen = new MutationObserver((records) => changes.push(...records));
    seen.observe(root, { childList: true, subtree: true, characterData: true, attributes: true });
    let text = '';
    const changed = [];
    for (let n = 0; n < 40; n += 1) {
        const said = `word${n} `;
        transcript.apply('delta', { turn: 't', message: 'a', offset: text.length, text: said });
        text += said;
        draw();
        changes.push(...seen.takeRecords());
        changed.push(changes.splice(0).length);
    }
    const rows = [root.childElementCount];
    span.hold(transcript.entries);
    const read = new Set();
    for (let n = 0; n < count; n += 1) {
        for (const { id } of part().entries) read.add(id);
        draw();
        rows.push(root.childElementCount);
        if (!span.earlier(transcript.entries)) break;
    }
    while (span.later(transcript.entries)) {
        draw();
        rows.push(root.childElementCount);
    }
    const isAtEnd = part().isEnd && root.textContent.includes('word39');
    root.remove();
    return { rows: Math.max(...rows), changed: Math.max(...changed.slice(1)), read: read.size,
        entries: part().entries.length, isAtEnd };
}"""


@pytest.mark.shared
async def test_a_long_conversation_costs_no_more_than_a_short_one(chat: Chat) -> None:
    await chat.sign_in()
    short = await chat.page.evaluate(LONG, 400)
    long = await chat.page.evaluate(LONG, 5_000)
    for found, count in ((short, 400), (long, 5_000)):
        # Every message can be reached, and comes back when one reads down again.
        assert found["read"] == count + 2, json.dumps(found)
        assert found["isAtEnd"]
    assert long["rows"] == short["rows"] < 400
    assert long["changed"] == short["changed"] < 10
    assert long["entries"] == short["entries"] < 400
    assert chat.errors == []
