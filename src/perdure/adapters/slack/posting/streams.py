"""Uses Slack's own streams: messages in a thread that text can be appended to.

A stream only grows. It ends by itself after some minutes, or when a person stops it. While it is
open, Slack refuses every other change of the message. So callers are told whether a stream still
takes text, and replace the whole message if it does not.
"""

from typing import Final

import msgspec

from perdure.adapters.slack.calls.recent import Recent
from perdure.adapters.slack.calls.refusals import Refused, is_of_rendering, is_of_thread
from perdure.adapters.slack.names import MessageName, is_private, message_of
from perdure.adapters.slack.payloads import Message, SlackEvent
from perdure.adapters.slack.posting.messages import Messages, metadata_of
from perdure.adapters.slack.render import Actions, markdown
from perdure.adapters.slack.wire import Nothing, Wire
from perdure.domain.errors import NotFound, PerdureError
from perdure.domain.ids import PartId
from perdure.ports.platform.adapter import Preview, ThreadGone, Unrenderable, Unsupported

# How many authors of messages are remembered. A forgotten one is asked for again.
SPEAKERS_MAX: Final = 2_000
UNKNOWN_METHOD: Final = "unknown_method"
# Error words for a stream that has ended. Its message stays and can be edited like any other.
_ENDED: Final = frozenset(
    {"message_not_in_streaming_state", "stopped_by_user", "streaming_state_conflict"}
)
_MISSING: Final = "message_not_found"


class StreamRecipient(msgspec.Struct, frozen=True):
    """Says for whom a stream is. Slack requires it in places with several people."""

    user: str = ""
    team: str = ""


class _Begun(msgspec.Struct, frozen=True):
    ts: str


class Streams:
    """Runs streams from their first words to their end."""

    def __init__(self, wire: Wire, messages: Messages) -> None:
        self._wire = wire
        self._messages = messages
        self._speakers: Recent[StreamRecipient] = Recent(SPEAKERS_MAX)

    def heard(self, event: SlackEvent) -> None:
        """Remember who wrote a message: the stream that answers it needs its author."""
        if event.user:
            name = MessageName(event.channel, event.ts)
            self._speakers[name.external_id] = _speaker(event)

    async def begin(self, preview: Preview, *, team: str) -> MessageName | None:
        """Begin a stream with the first words. Returns None if this thread cannot have one.

        Raises `Unsupported` if the server knows no streams, and `ThreadGone`.
        """
        speaker = await self._speaker(preview)
        if speaker is None:
            return None
        params = {
            "channel": preview.address.place,
            "thread_ts": preview.address.thread,
            "markdown_text": markdown(preview.text),
            "recipient_user_id": speaker.user,
            "recipient_team_id": (speaker.team or team) if speaker.user else "",
        }
        try:
            begun = await self._wire.send("chat.startStream", params, _Begun)
        except Refused as refused:
            if refused.error == UNKNOWN_METHOD:
                raise Unsupported("this Slack server knows no streams") from refused
            if is_of_thread(refused):
                raise ThreadGone(refused.message) from refused
            return None
        return MessageName(preview.address.place, begun.ts)

    async def append(self, name: MessageName, *, shown: str, text: str) -> bool:
        """Append to a stream what `text` has beyond `shown`. Returns False if the stream has ended.

        After `Ambiguous` the text may or may not have been appended.
        """
        rest = markdown(text).removeprefix(markdown(shown))
        if not rest:
            return True
        params = {"channel": name.channel, "ts": name.ts, "markdown_text": rest}
        try:
            await self._wire.send("chat.appendStream", params, Nothing)
        except Refused as refused:
            if refused.error in _ENDED:
                return False
            raise _told(refused) from refused
        return True

    async def end(
        self,
        name: MessageName,
        *,
        shown: str = "",
        text: str = "",
        below: tuple[Actions, ...] = (),
        key: PartId | None = None,
    ) -> bool:
        """End a stream with the rest of `text`, and with the buttons `below` it. Returns False if
        there was no stream to end.

        Ending it twice does no harm: the second call returns False.
        """
        params = {
            "channel": name.channel,
            "ts": name.ts,
            "markdown_text": markdown(text).removeprefix(markdown(shown)),
            "blocks": below,
            "metadata": metadata_of(key) if key is not None else None,
        }
        try:
            await self._wire.ask("chat.stopStream", params, Nothing)
        except Refused as refused:
            if refused.error in _ENDED or refused.error == UNKNOWN_METHOD:
                return False
            raise _told(refused) from refused
        return True

    async def _speaker(self, preview: Preview) -> StreamRecipient | None:
        """Return for whom a stream is, or None if that cannot be found out."""
        answered = message_of(preview.reply_to)
        known = self._speakers.get(preview.reply_to)
        if known is None and preview.address.person:
            known = StreamRecipient(preview.address.person)
        if known is None and is_private(preview.address.place):
            return StreamRecipient()
        if known is None and answered is not None:
            message = await self._messages.read(answered)
            known = _speaker(message) if message is not None and message.user else None
        return known


def _told(refused: Refused) -> PerdureError:
    """Return the domain's error for a refusal to change a stream."""
    if refused.error == _MISSING:
        return NotFound("the message to change is gone from Slack")
    return Unrenderable(refused.message) if is_of_rendering(refused) else refused


def _speaker(message: Message) -> StreamRecipient:
    return StreamRecipient(message.user or "", message.user_team or message.team or "")
