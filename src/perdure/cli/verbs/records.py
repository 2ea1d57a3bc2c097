"""Implements `perdure sessions` and `perdure token`: list, show, search, add, revoke."""

from collections.abc import Sequence
from typing import Final

import msgspec
from rich.padding import Padding
from rich.text import Text

from perdure.app.config.environment import signed_in
from perdure.cli.exits import complain
from perdure.cli.printing import clean, print_json, short_line, when
from perdure.cli.tables import console, print_table
from perdure.cli.target import CommandTarget, EndpointAnswerer, answering, running
from perdure.domain.errors import NotFound
from perdure.domain.ids import SessionId
from perdure.domain.journal.codec import decode
from perdure.domain.journal.events import Recorded
from perdure.domain.journal.records import SessionView
from perdure.domain.journal.transcript import Entry
from perdure.ports.records.history import Hit
from perdure.web import wire
from perdure.web.api import native
from perdure.web.endpoints import WANTED
from perdure.web.ops import records, tokens

# How many sessions or events, turns, and hits are asked for at once.
PAGE: Final = 1000
TURNS: Final = 200
HITS: Final = 200


async def list_sessions(target: CommandTarget, *, limit: int, after: str | None) -> None:
    """Print one page of the sessions."""
    async with answering(target) as answers:
        found = await answers.ask(records.sessions, limit=limit, cursor=after)
    if target.is_json:
        print_json(found)
    elif not found.sessions:
        print("no sessions yet; `perdure chat` begins one")
    else:
        rows = [_row(each) for each in found.sessions]
        print_table(["ID", "CONVERSATION", "STATE", "EVENTS", "LAST ACTIVE", "TITLE"], rows)
        if found.next:
            print(f"more with: perdure sessions list --after {found.next}")


def _row(session: SessionView) -> list[str]:
    """Return a row of the table. A session that is open but no longer live is shown as closed."""
    state = session.state if session.is_live or session.state != "open" else "closed"
    return [
        session.id,
        session.conversation,
        state,
        str(session.events),
        when(session.active_at),
        session.title,
    ]


async def search(
    target: CommandTarget, *, words: Sequence[str], limit: int, after: str | None
) -> None:
    """Print the messages that contain all the words."""
    async with answering(target) as answers:
        found = await hits(answers, " ".join(words), limit=limit, after=after)
    if target.is_json:
        print_json(found)
        return
    out = console()
    for hit in found.hits:
        where = clean(hit.conversation)
        out.print(Text(f"{when(hit.at)}  {where}  {hit.role}  {hit.message}", "dim"))
        out.print(Text(f"  {short_line(hit.text, length=200)}"))
    if not found.hits:
        print("nothing found; all the words must stand in one message")
    if found.next:
        print(f"more with: --after {found.next}")


async def hits(
    answers: EndpointAnswerer, query: str, *, limit: int, after: str | None, page: int = HITS
) -> wire.SearchOut:
    """Return at most `limit` hits, asked for in pages of a size that a node accepts."""
    found: list[Hit] = []
    while True:
        size = min(limit - len(found), page)
        more = await answers.ask(records.search, q=query, limit=size, before=after)
        found += more.hits
        after = more.next
        if after is None or len(found) >= limit:
            return wire.SearchOut(hits=found, next=after)


async def show(
    target: CommandTarget, *, which: str, is_raw: bool, with_notices: bool = False
) -> None:
    """Print the transcript of a session, or its raw journal."""
    async with answering(target) as answers:
        session = await answers.ask(records.session, await _session_named(answers, which))
        if is_raw:
            print_json(await _whole_journal(answers, session.id))
            return
        transcript = await _whole_transcript(
            answers, session.id, notices=WANTED if with_notices else None
        )
    if target.is_json:
        print_json(transcript)
    else:
        _print_transcript(session, transcript.messages)


async def _session_named(answers: EndpointAnswerer, which: str) -> str:
    """Return a session's id. `which` is one, or names a conversation: the operator's own first,
    then anybody's."""
    if which.startswith("ses_"):
        return which
    try:
        return (await answers.ask(native.conversation, which)).session
    except NotFound:
        return await _live_session(answers, which)


async def _live_session(answers: EndpointAnswerer, conversation: str) -> str:
    """Find the live session of a conversation among all sessions. Raises `NotFound`."""
    after: str | None = None
    while True:
        page = await answers.ask(records.sessions, limit=PAGE, cursor=after)
        for session in page.sessions:
            if session.conversation == conversation and session.is_live:
                return session.id
        after = page.next
        if after is None:
            raise NotFound(
                f"there is no session or conversation {conversation!r}; "
                "`perdure sessions list` shows them"
            )


async def _whole_journal(answers: EndpointAnswerer, session: str) -> wire.JournalOut:
    events: list[wire.EventOut] = []
    after = 0
    while True:
        page = await answers.ask(records.journal, session, after=after, limit=PAGE)
        events += page.events
        if page.next is None:
            return msgspec.structs.replace(page, events=events)
        after = int(page.next)


async def _whole_transcript(
    answers: EndpointAnswerer, session: str, *, notices: str | None
) -> wire.TranscriptOut:
    """Return every turn that has begun, also those that were undone; these are marked."""
    pages: list[list[Entry]] = []
    before: str | None = None
    while True:
        page = await answers.ask(
            records.transcript, session, cursor=before, limit=TURNS, notices=notices
        )
        pages.insert(0, page.messages)
        before = page.next
        if before is None:
            messages = [entry for each in pages for entry in each]
            return wire.TranscriptOut(session=session, messages=messages, next=None)


def recorded(session: str, event: wire.EventOut) -> Recorded:
    """Decode an event of the journal as it was stored."""
    fact = decode(event.kind, bytes(event.body).decode())
    return Recorded(session=SessionId(session), seq=event.seq, at=event.at, event=fact)


def _print_transcript(session: SessionView, entries: Sequence[Entry]) -> None:
    out = console()
    out.print(Text(f"{clean(session.conversation)}  {session.id}", "bold"))
    if session.title:
        out.print(Text(clean(session.title)))
    for entry in entries:
        out.print()
        out.print(heading(entry))
        if entry.text.strip():
            out.print(Padding(Text(clean(entry.text.strip())), (0, 0, 0, 2), expand=False))
        for call in entry.tool_calls:
            out.print(
                Text(f"  → {short_line(f'{call.name} {call.arguments}', length=200)}", "cyan")
            )


def heading(entry: Entry) -> Text:
    """Return the line above a message: who, when, its id, and how its turn ended if that was not
    well."""
    style = {"user": "bold green", "assistant": "bold blue"}.get(entry.role, "bold cyan")
    line = Text(entry.role, style).append(f"  {when(entry.at)}  {entry.id}", "dim")
    if entry.session:
        line.append(f"  shared with {entry.session}", "dim")
    if entry.question:
        line.append(f"  {entry.question} {entry.state}", "yellow")
    if entry.left:
        line.append(f"  {entry.left.replace('_', ' ')}", "yellow")
    if entry.outcome is not None and entry.outcome != "done":
        line.append(
            f"  {entry.outcome}" + (f": {clean(entry.reason)}" if entry.reason else ""), "red"
        )
    return line


async def list_tokens(target: CommandTarget) -> None:
    async with answering(target) as answers:
        found = await answers.ask(tokens.tokens)
    if target.is_json:
        print_json(found)
        return
    rows = [
        [
            token.id,
            token.principal,
            token.role,
            when(token.created_at),
            when(token.revoked_at) if token.revoked_at is not None else "",
        ]
        for token in found.tokens
    ]
    print_table(["ID", "NAME", "ROLE", "CREATED", "REVOKED"], rows)


async def link_token(target: CommandTarget) -> None:
    """Print the address with the token. Only a running node knows where it listens: at an old
    address another program might wait for the token."""
    node = await running(target)
    link = signed_in(node.public, node.token)
    if target.is_json:
        print_json({"url": link})
    else:
        print(link)


async def add_token(target: CommandTarget, *, name: str) -> None:
    """Make a token and print it. If there is no home yet, one is created."""
    if not target.home.exists():
        complain(f"making a new home in {target.home}; --home or PERDURE_HOME chooses another")
    async with answering(target, make=True) as answers:
        token = await answers.ask(tokens.grant, body=wire.TokenIn(name=name))
    if target.is_json:
        print_json(token)
    else:
        print(f"{token.id} for {clean(token.principal)}; the token is shown this once:")
        print(token.token)


async def revoke_token(target: CommandTarget, *, which: str) -> None:
    """Revoke a token, by its id or its name."""
    async with answering(target) as answers:
        token = await answers.ask(tokens.revoke, which)
    if target.is_json:
        print_json(msgspec.structs.replace(token, token=""))
    else:
        print(f"{token.id} of {clean(token.principal)} is revoked")
