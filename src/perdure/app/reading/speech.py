"""Turns speech into text, with a server that speaks OpenAI's audio wire or with a program, and
answers into speech, with such a server."""

import asyncio
import tempfile
from pathlib import Path
from typing import Final

import aiohttp
import msgspec

from perdure.app.config.values import (
    SpeechConfig,
    TranscriberConfig,
)
from perdure.app.reading.file_reading import Transcriber, run_child
from perdure.domain.errors import Permanent, Transient
from perdure.domain.reading.texts import UnreadableFile
from perdure.ports.records.media import FileSource
from perdure.ports.system.outgoing import DIRECT, Outgoing
from perdure.ports.system.speech import Voice
from perdure.ports.system.time_limits import time_limit

FILE: Final = "{file}"
ANSWER_BYTES_MAX: Final = 2_000_000
_PATH: Final = "/audio/transcriptions"
SPEECH_BYTES_MAX: Final = 20_000_000
_SPEECH_PATH: Final = "/audio/speech"
# What chat platforms show as a voice message is Opus in an Ogg file.
_FORMAT: Final = "opus"
_OGG: Final = b"OggS"
_MAY_PASS: Final = frozenset({408, 425, 429})
_SUFFIXES: Final = {
    "audio/ogg": ".ogg",
    "audio/mpeg": ".mp3",
    "audio/wav": ".wav",
    "audio/mp4": ".m4a",
    "audio/webm": ".webm",
    "audio/flac": ".flac",
}


class _Heard(msgspec.Struct):
    text: str


def transcriber_of(config: TranscriberConfig, outgoing: Outgoing = DIRECT) -> Transcriber | None:
    """Return the configured transcriber, or None."""
    if config.command:
        return ProgramTranscriber(config)
    return ServerTranscriber(config, outgoing) if config.url else None


class ServerTranscriber:
    """Asks a server. Its time limit is for the whole request."""

    def __init__(self, config: TranscriberConfig, outgoing: Outgoing) -> None:
        assert config.url is not None
        self._config = config
        self._outgoing = outgoing
        base = config.url.rstrip("/")
        self._url = base if base.endswith(_PATH) else base + _PATH

    async def hear(self, source: FileSource) -> str:
        try:
            async with time_limit(self._config.timeout_s), self._outgoing.session() as http:
                return await self._ask(http, source)
        except TimeoutError as error:
            raise UnreadableFile(
                f"the transcriber took longer than {self._config.timeout_s:g} s"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise UnreadableFile("the transcriber cannot be reached") from error

    async def _ask(self, http: aiohttp.ClientSession, source: FileSource) -> str:
        key = self._config.api_key
        headers = {"Authorization": f"Bearer {key.reveal()}"} if key else {}
        async with http.post(self._url, data=self._form(source), headers=headers) as response:
            answer = await response.content.read(ANSWER_BYTES_MAX)
            if response.status != 200:
                raise UnreadableFile(f"the transcriber answered with status {response.status}")
        try:
            return msgspec.json.decode(answer, type=_Heard).text
        except msgspec.MsgspecError as error:
            raise UnreadableFile("the transcriber's answer is not understood") from error

    def _form(self, source: FileSource) -> aiohttp.FormData:
        form = aiohttp.FormData()
        form.add_field("model", self._config.model)
        form.add_field("response_format", "json")
        if self._config.language:
            form.add_field("language", self._config.language)
        form.add_field(
            "file", source.data, filename=f"voice{_suffix(source)}", content_type=source.mime
        )
        return form


class ProgramTranscriber:
    """Runs a program that is given the name of a file and prints what was said in it."""

    def __init__(self, config: TranscriberConfig) -> None:
        self._config = config

    async def hear(self, source: FileSource) -> str:
        command = self._config.command or ()
        with tempfile.TemporaryDirectory(prefix="perdure-") as folder:
            file = Path(folder) / f"voice{_suffix(source)}"
            await asyncio.to_thread(file.write_bytes, source.data)
            named = [argument.replace(FILE, str(file)) for argument in command]
            said = await run_child(named, b"", seconds=self._config.timeout_s)
        return said[:ANSWER_BYTES_MAX].decode("utf-8", "replace")


def _suffix(source: FileSource) -> str:
    return _SUFFIXES.get(source.mime, ".bin")


def speaker_of(config: SpeechConfig, outgoing: Outgoing = DIRECT) -> Voice | None:
    """Return the configured speaker, or None."""
    return ServerVoice(config, outgoing) if config.url else None


class ServerVoice:
    """Asks a server. Its time limit is for the whole request."""

    def __init__(self, config: SpeechConfig, outgoing: Outgoing) -> None:
        assert config.url is not None
        self._config = config
        self._outgoing = outgoing
        base = config.url.rstrip("/")
        self._url = base if base.endswith(_SPEECH_PATH) else base + _SPEECH_PATH

    async def speak(self, words: str) -> bytes:
        try:
            async with time_limit(self._config.timeout_s), self._outgoing.session() as http:
                data = await self._ask(http, words)
        except TimeoutError as error:
            raise Transient(
                f"the speech server took longer than {self._config.timeout_s:g} s"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise Transient("the speech server cannot be reached; check [speech] url") from error
        if not data.startswith(_OGG):
            raise Permanent("the speech server sent no Ogg file, although Opus was asked for")
        return data

    async def _ask(self, http: aiohttp.ClientSession, words: str) -> bytes:
        key = self._config.api_key
        headers = {"Authorization": f"Bearer {key.reveal()}"} if key else {}
        body = {
            "model": self._config.model,
            "voice": self._config.voice,
            "input": words,
            "response_format": _FORMAT,
        }
        async with http.post(self._url, json=body, headers=headers) as response:
            if response.status != 200:
                raise _refusal(response.status)
            data = bytearray()
            async for piece in response.content.iter_any():
                data += piece
                if len(data) > SPEECH_BYTES_MAX:
                    raise Permanent(f"the speech server sent more than {SPEECH_BYTES_MAX:,} bytes")
            return bytes(data)


def _refusal(status: int) -> Transient | Permanent:
    """Return the error that stands for a status other than 200."""
    what = f"the speech server answered with status {status}"
    if status in _MAY_PASS or status >= 500:
        return Transient(what)
    advice = "check [speech] api_key" if status in (401, 403) else "check [speech]"
    return Permanent(f"{what}; {advice}")
