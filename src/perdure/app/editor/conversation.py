"""Holds one conversation that is open in an editor.

One task follows the conversation and tells the editor everything that happens there, whoever has
begun it. A prompt is a message like any other; it has ended when the follower hears how its turn
ended. If the editor goes away, the turn goes on, and the editor finds its answer when it opens the
conversation again.

While a message is being sent, the follower holds still. So it knows which messages the editor has
sent before it hears of them, and cannot miss the end of a turn that nobody waits for yet.
"""

import asyncio
from contextlib import aclosing, suppress
from functools import partial
from typing import Final

from perdure.app.editor.asking import answer_of
from perdure.app.editor.link import EditorLink
from perdure.app.editor.prompts import FileGiven, MessageGiven
from perdure.app.editor.reach import AWAY, PatientNode, ReconnectPatience
from perdure.app.editor.retelling import Retelling, ending_of
from perdure.app.editor.shapes import PromptReason, Update, UpdateSent
from perdure.app.operate.client import BEGINNING, NodeClient
from perdure.domain.errors import Conflict, NotFound, PerdureError, Rejected, Transient
from perdure.domain.journal.records import QuestionView
from perdure.domain.journal.transcript import Entry
from perdure.domain.outcomes import Outcome, QuestionKind, StopReason
from perdure.domain.text import storable
from perdure.domain.turn.watching import News, OutcomeNews, QuestionNews, StateNews
from perdure.web import wire
from perdure.web.api import native
from perdure.web.ops import approvals

# How many messages of the past an editor is shown.
PAST_MAX: Final = 1_000
PAGE: Final = 200
# Commands whose work runs as an errand. The conversation is told when it is done.
ERRANDS: Final = ("background", "compact")
_PENDING: Final = "pending"
_WAITING: Final = "waiting"
_EARLIER: Final = "Earlier messages are on the page of the gateway."
_AWAY: Final = "The node does not answer. What was said is kept; looking for the node."
_OPEN: Final = {
    QuestionKind.APPROVAL: "This is still open: say /approve or /deny as above, or answer it "
    "wherever else you talk.",
    QuestionKind.QUESTION: "This is still open: answer it here in words, or wherever else you "
    "talk.",
}


class _Prompt:
    """Holds one prompt that is under way. `ended` gets why it ended, or the error."""

    def __init__(self) -> None:
        self.turn: str | None = None
        self.is_cancelled = False
        self.ended: asyncio.Future[PromptReason] = asyncio.get_running_loop().create_future()

    def end(self, reason: PromptReason) -> None:
        if not self.ended.done():
            self.ended.set_result("cancelled" if self.is_cancelled else reason)

    def fail(self, error: PerdureError) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)


class OpenConversation:
    """Follows a conversation for an editor, and sends what is typed there. `session` is its name;
    `has_forms` says that the editor can show forms."""

    def __init__(
        self,
        session: str,
        link: EditorLink,
        node: PatientNode,
        telling: Retelling,
        *,
        has_forms: bool,
    ) -> None:
        self.session = session
        self._link = link
        self._node = node
        self._telling = telling
        self._has_forms = has_forms
        self._gate = asyncio.Lock()
        self._position = ""
        self._follower: asyncio.Task[None] | None = None
        self._prompts: list[_Prompt] = []
        self._questions: dict[str, asyncio.Task[None]] = {}
        self._running: str | None = None
        self._is_waiting = False

    @property
    def is_busy(self) -> bool:
        """Tell whether a prompt is under way."""
        return bool(self._prompts)

    async def begin(self, *, with_past: bool, must_exist: bool) -> None:
        """Follow the conversation from now on; with `with_past`, tell what was said before. Raises
        `NotFound` if it must exist and does not."""
        try:
            self._position = await self._node.insist(self._now)
        except NotFound:
            if must_exist:
                raise
            # A conversation that does not exist yet is followed from its first message on.
            self._position = BEGINNING
            return
        if with_past:
            await self._tell_past()
        self._follow()
        await self._ask_what_is_open()

    async def say(self, message: MessageGiven, client_id: str) -> PromptReason:
        """Send a message, and wait until its turn has ended."""
        prompt = _Prompt()
        self._prompts.append(prompt)
        try:
            async with self._gate:
                accepted = await self._send(message, client_id)
                self._telling.know(accepted.message)
                prompt.turn = accepted.turn
                if accepted.turn is None or accepted.command in ERRANDS:
                    await self._update(self._telling.replied(accepted.reply or ""))
                    prompt.end("end_turn")
            self._follow()
            if prompt.is_cancelled:
                await self._stop(prompt.turn)
            # The message may wait behind a question that was left open, so it is asked once more.
            await self._ask_what_is_open()
            return await prompt.ended
        finally:
            self._prompts.remove(prompt)

    async def cancel(self) -> None:
        """Stop the turns of the prompts that are under way; if there are none, the turn that
        runs."""
        turns = {prompt.turn for prompt in self._prompts} or {self._running}
        for prompt in self._prompts:
            prompt.is_cancelled = True
        for turn in turns:
            await self._stop(turn)

    def rest(self) -> None:
        """Stop following until the next message, which catches up."""
        for task in (self._follower, *self._questions.values()):
            if task is not None:
                task.cancel()
        self._follower = None

    def close(self) -> None:
        """Stop following. Turns that run go on."""
        self.rest()
        for prompt in self._prompts:
            prompt.end("cancelled")

    async def _send(self, message: MessageGiven, client_id: str) -> wire.MessageOut:
        """Send a message with its files, once: the node knows its id again."""
        stored = [await self._node.insist(partial(_uploaded, file)) for file in message.files]
        body = wire.MessageIn(
            text=storable(message.text),
            id=client_id,
            attachments=[wire.AttachmentIn(media=each) for each in stored],
        )

        async def post(node: NodeClient) -> wire.MessageOut:
            return await node.ask(native.post_message, self.session, body=body)

        return await self._node.insist(post)

    async def _stop(self, turn: str | None) -> None:
        if turn is None:
            return

        async def stop(node: NodeClient) -> None:
            # The turn may have ended just now. Then its own end is told.
            with suppress(Conflict):
                await node.ask(native.stop_turn, turn)

        await self._node.insist(stop)

    async def _now(self, node: NodeClient) -> str:
        """Return the present position of the conversation."""
        async with aclosing(node.watch(self.session, after=None)) as stream:
            async for position, news in stream:
                self._note(news)
                return position
        return BEGINNING

    async def _tell_past(self) -> None:
        """Tell the newest messages, oldest first."""
        entries, before = list[Entry](), None
        while len(entries) < PAST_MAX:
            page = await self._node.insist(partial(self._page, before))
            entries = [*page.messages, *entries]
            before = page.next
            if before is None:
                break
        if before is not None:
            await self._update(self._telling.noticed(_EARLIER))
        for entry in entries:
            is_over = bool(entry.outcome or entry.tool_calls)
            for update in self._telling.retold(entry, may_grow=not is_over):
                await self._update(update)

    async def _page(self, before: str | None, node: NodeClient) -> wire.TranscriptOut:
        return await node.ask(
            native.transcript, self.session, limit=PAGE, before=before, notices="true"
        )

    def _follow(self) -> None:
        if self._follower is None or self._follower.done():
            self._follower = self._link.begin(self._followed())

    async def _followed(self) -> None:
        """Tell the editor what happens, until the node cannot be found any more."""
        patience = ReconnectPatience(self._node)
        try:
            while True:
                try:
                    await self._listen(patience)
                    await patience.spend(Transient("the node has closed the stream"))
                except AWAY as error:
                    if self._prompts and not patience.is_spending:
                        await self._update(self._telling.noticed(_AWAY))
                    await patience.spend(error)
        except PerdureError as error:
            for prompt in self._prompts:
                prompt.fail(error)

    async def _listen(self, patience: ReconnectPatience) -> None:
        node = await self._node.client()
        async with aclosing(node.watch(self.session, after=self._position)) as stream:
            async for position, news in stream:
                patience.renew()
                async with self._gate:
                    await self._hear(news)
                    self._position = position

    async def _hear(self, news: News) -> None:
        """Tell the editor one piece of news, and do what follows from it."""
        for update in self._telling.retold(news):
            await self._update(update)
        self._note(news)
        match news:
            case QuestionNews(state=state) if state == _PENDING:
                self._ask(news.id)
            case QuestionNews():
                # Somebody has answered, here or elsewhere, or nobody will any more.
                self._withdraw(news.id)
            case OutcomeNews():
                await self._end(news)
            case _:
                pass

    def _note(self, news: News) -> None:
        if isinstance(news, StateNews):
            self._running, self._is_waiting = news.turn, news.state == _WAITING

    async def _end(self, news: OutcomeNews) -> None:
        """End the prompts that wait for a turn. If it failed and nobody waits, say so."""
        problem = ending_of(news.outcome, news.reason, news.detail)
        waiting = [prompt for prompt in self._prompts if prompt.turn == news.turn]
        for prompt in waiting:
            if problem and not prompt.is_cancelled:
                prompt.fail(Rejected(problem, code=str(news.outcome)))
            else:
                prompt.end(_stop_reason(news))
        if problem and not waiting:
            await self._update(self._telling.noticed(problem))

    async def _ask_what_is_open(self) -> None:
        """Ask what the turn that waits has asked, and nobody has answered yet."""
        turn = self._running
        if turn is None or not self._is_waiting:
            return
        found = await self._node.insist(lambda node: node.ask(approvals.approvals, turns=turn))
        for question in found.approvals:
            if question.state == _PENDING:
                self._ask(question.id)

    def _ask(self, question: str) -> None:
        if question not in self._questions:
            self._questions[question] = self._link.begin(self._asked(question))

    def _withdraw(self, question: str) -> None:
        asked = self._questions.pop(question, None)
        if asked is not None:
            asked.cancel()

    async def _asked(self, question: str) -> None:
        """Ask the person a question, and give the answer to the node. Without an answer the prompt
        ends, so that the person can type one."""
        try:
            view = await self._node.insist(lambda node: node.ask(approvals.approval, question))
            if view.state != _PENDING:
                return
            answer = await answer_of(
                self._link, self.session, view, self._telling, has_forms=self._has_forms
            )
            if answer is None:
                await self._leave_open(view)
            else:
                await self._node.insist(partial(_given, question, answer))
        except PerdureError as error:
            await self._update(self._telling.noticed(error.message))
        finally:
            self._questions.pop(question, None)

    async def _leave_open(self, question: QuestionView) -> None:
        """Show a question as text, and end the prompts: all of them wait for it."""
        if any(prompt.is_cancelled for prompt in self._prompts):
            return
        told = f"{question.text}\n\n{_OPEN[QuestionKind(question.kind)]}"
        await self._update(self._telling.noticed(told))
        for prompt in self._prompts:
            prompt.end("end_turn")

    async def _update(self, update: Update) -> None:
        await self._link.tell("session/update", UpdateSent(session_id=self.session, update=update))


def _stop_reason(news: OutcomeNews) -> PromptReason:
    if news.outcome != Outcome.DONE:
        return "cancelled"
    return "max_tokens" if news.reason == StopReason.LENGTH else "end_turn"


async def _uploaded(file: FileGiven, node: NodeClient) -> str:
    return (await node.upload(file.data, mime=file.mime, name=file.name)).id


async def _given(question: str, answer: wire.AnswerIn, node: NodeClient) -> None:
    """Give an answer. If somebody was faster, theirs counts."""
    with suppress(Conflict):
        await node.ask(approvals.answer, question, body=answer)
