"""Encodes events for the journal, and decodes them.

The body of an event is JSON with its format version in `v`. A format only ever gains versions. An
old body is read through the upcasters, pure functions from the fields of one version to those of
the next.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from perdure.domain.errors import Corrupt
from perdure.domain.journal import events, question_events, session_events
from perdure.domain.journal.events import AnyEvent

Fields = dict[str, object]

# The names under which the journal stores events. They are in stored rows, so they never change.
KINDS: Final[Mapping[str, type[AnyEvent]]] = {
    "session_opened": session_events.SessionOpened,
    "session_closed": session_events.SessionClosed,
    "session_resumed": session_events.SessionResumed,
    "turn_queued": events.TurnQueued,
    "turn_started": events.TurnStarted,
    "prompt_expanded": events.PromptExpanded,
    "assistant_said": events.AssistantSaid,
    "tool_started": events.ToolStarted,
    "tool_finished": events.ToolFinished,
    "attempt_interrupted": events.AttemptInterrupted,
    "answer_awaited": question_events.AnswerAwaited,
    "answer_received": question_events.AnswerReceived,
    "wait_ended": question_events.WaitEnded,
    "work_delegated": question_events.WorkDelegated,
    "work_returned": question_events.WorkReturned,
    "effect_marked": question_events.EffectMarked,
    "interruption_acknowledged": events.InterruptionAcknowledged,
    "steer_accepted": events.SteerAccepted,
    "steer_taken": events.SteerTaken,
    "turn_amended": events.TurnAmended,
    "notice_posted": events.NoticePosted,
    "turn_requeued": events.TurnRequeued,
    "turn_moved": events.TurnMoved,
    "turn_settled": events.TurnSettled,
    "command_taken": session_events.CommandTaken,
    "head_moved": session_events.HeadMoved,
    "title_set": session_events.TitleSet,
    "compacted": session_events.Compacted,
    "compaction_failed": session_events.CompactionFailed,
    "compaction_dropped": session_events.CompactionDropped,
    "message_joined": events.MessageJoined,
    "media_fetched": events.MediaFetched,
    "media_lost": events.MediaLost,
    "sticker_described": events.StickerDescribed,
    "content_left_out": events.ContentLeftOut,
    "window_exceeded": session_events.WindowExceeded,
    "room_sought": session_events.RoomSought,
}
KIND_OF: Final[Mapping[type[AnyEvent], str]] = {kind: name for name, kind in KINDS.items()}

# By kind and version, the function that makes the fields of the next version.
UPCASTERS: Final[Mapping[tuple[str, int], Callable[[Fields], Fields]]] = {}
VERSION: Final = 1

_encoder = msgspec.json.Encoder()
_decoders: Final = {kind: msgspec.json.Decoder(event) for kind, event in KINDS.items()}


def encode(event: AnyEvent) -> tuple[str, str]:
    """Return an event's kind and its JSON body."""
    return KIND_OF[type(event)], _encoder.encode(event).decode()


def decode(kind: str, body: str) -> AnyEvent:
    """Return an event from a body of any version ever written. Raises `Corrupt` if it cannot be
    read, or if a newer Perdure wrote it."""
    decoder = _decoders.get(kind)
    if decoder is None:
        raise Corrupt(
            f"the journal holds an event of unknown kind {kind!r}; "
            "it was written by a newer Perdure: upgrade this one"
        )
    try:
        event: AnyEvent = decoder.decode(body)
    except msgspec.MsgspecError:
        return _upcast(kind, body)
    return event if event.v == VERSION else _upcast(kind, body)


def _upcast(kind: str, body: str) -> AnyEvent:
    """Return an event from a body that the current format does not fit."""
    try:
        fields = msgspec.json.decode(body, type=Fields)
        version = fields.get("v")
        while isinstance(version, int) and (kind, version) in UPCASTERS:
            fields = UPCASTERS[kind, version](fields)
            version = fields.get("v")
        if version != VERSION:
            raise Corrupt(
                f"a {kind} event has version {version}, this Perdure reads up to {VERSION}; "
                "upgrade Perdure"
            )
        event: AnyEvent = msgspec.convert(fields, type=KINDS[kind])
    except msgspec.MsgspecError as error:
        raise Corrupt(f"a {kind} event cannot be read ({error}); restore a backup") from error
    return event
