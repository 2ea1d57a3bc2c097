"""Makes what a platform is asked to do for a part: from its text, its file, or a recording in which
the text is read aloud.

A recording is made anew for each attempt. Nobody hears it before the platform is called, so this
repeats no effect.
"""

from typing import Final

import msgspec

from perdure.domain.content.speech import SPEECH_MIME, SPEECH_NAME, words_to_speak
from perdure.domain.delivery import KEPT, Capabilities, DeliveryStep, with_choices, without_promise
from perdure.domain.errors import Permanent, Transient
from perdure.domain.ids import MediaId
from perdure.engine.delivery.surfaces import Surface
from perdure.ports.delivery.outbox import Part
from perdure.ports.platform.adapter import (
    Delete,
    Edit,
    Effect,
    Post,
    React,
    ThreadGone,
    Unrenderable,
    Upload,
)
from perdure.ports.records.media import MediaLibrary
from perdure.ports.system.speech import Voice

SPEECH_TRIES_MAX: Final = 2


class EffectMaker:
    """Makes effects. Without a `speaker` nothing is read aloud."""

    def __init__(self, media: MediaLibrary, speaker: Voice | None) -> None:
        self._media = media
        self._speaker = speaker

    async def of(self, surface: Surface, part: Part, shown: str) -> Effect | None:
        """Return what to ask of the platform. Returns None if there is nothing to delete or to
        mark, or if the platform cannot do that: nobody waits for it."""
        can = surface.capabilities(part.address)
        match part.step:
            case DeliveryStep.POST | DeliveryStep.BUBBLE:
                return _post(part, can)
            case DeliveryStep.EDIT:
                return Edit(
                    key=part.id,
                    address=part.address,
                    receipt=part.receipt,
                    text=part.text,
                    shown=shown,
                )
            case DeliveryStep.DELETE:
                is_there = part.receipt not in ("", KEPT)
                wanted = Delete(address=part.address, receipt=part.receipt)
                return wanted if is_there and can.can_delete else None
            case DeliveryStep.UPLOAD:
                if part.media is None:
                    return await self._speech(part, can)
                return await self._upload(part, part.media, can)
            case DeliveryStep.REACT:
                mark = React(address=part.address, external_id=part.reply_to, emoji=part.text)
                return mark if can.can_react and part.reply_to else None

    async def _upload(self, part: Part, file: MediaId, can: Capabilities) -> Effect:
        """Return the upload of a file, or a post that names the file if it is too large."""
        media = await self._media.get(file, principal=None)
        limit = can.upload_bytes_max
        if media.size > limit:
            why = "files cannot be sent here" if not limit else f"the limit is {limit:,} bytes"
            named = f"(The file {media.name}, {media.size:,} bytes, could not be sent: {why}.)"
            return _post(part, can, named)
        return Upload(
            key=part.id,
            address=part.address,
            name=media.name,
            mime=media.mime,
            data=await self._media.read(file),
            caption=part.text,
            after=part.after,
            is_repeat=part.attempts > 1,
        )

    async def _speech(self, part: Part, can: Capabilities) -> Effect | None:
        """Return the upload of a recording in which an answer is read aloud. Returns None if there
        is nothing to say, or if nobody can say it any more."""
        words = words_to_speak(part.text)
        if self._speaker is None or not words or not can.upload_bytes_max:
            return None
        try:
            speech = await self._speaker.speak(words)
        except Transient as error:
            # Everything that is said later waits in line behind this part, and the answer can be
            # read already.
            if part.attempts < SPEECH_TRIES_MAX:
                raise
            raise Permanent(without_promise(error.message)) from error
        if len(speech) > can.upload_bytes_max:
            raise Permanent(f"a recording may have {can.upload_bytes_max:,} bytes here")
        return Upload(
            key=part.id,
            address=part.address,
            name=SPEECH_NAME,
            mime=SPEECH_MIME,
            data=speech,
            is_voice=True,
            after=part.after,
            is_repeat=part.attempts > 1,
        )


def otherwise(effect: Effect, error: Unrenderable | ThreadGone) -> Effect | None:
    """Return the same words in a form that was not refused yet, or None if there is none."""
    match error, effect:
        case Unrenderable(), Post() | Edit() if not effect.is_plain:
            return msgspec.structs.replace(effect, is_plain=True)
        case ThreadGone(), Post() | Upload() if effect.address.thread:
            address = msgspec.structs.replace(effect.address, thread="")
            return msgspec.structs.replace(effect, address=address)
        case _:
            return None


def _post(part: Part, can: Capabilities, text: str = "") -> Post:
    return Post(
        key=part.id,
        address=part.address,
        text=with_choices(
            text or part.text, part.choices, can, is_explained=part.question is not None
        ),
        reply_to=part.reply_to,
        choices=part.choices if len(part.choices) <= can.choices_max else (),
        question=part.question,
        after=part.after,
        is_repeat=part.attempts > 1,
    )
