"""Calculates the length of a recording from its own bytes, for the two kinds that state it: Ogg and
WAV."""

from typing import Final

# Opus counts time in this rate, whatever the rate of the recording.
_OPUS_RATE: Final = 48_000
# A longer recording is not believed.
_LONGEST_S: Final = 86_400


def seconds_of(data: bytes) -> int:
    """Return the length of a recording in whole seconds, or 0 if it is not known."""
    if data.startswith(b"OggS"):
        seconds = _ogg(data)
    elif data.startswith(b"RIFF") and data[8:12] == b"WAVE":
        seconds = _wav(data)
    else:
        seconds = 0
    return seconds if 0 < seconds <= _LONGEST_S else 0


def _ogg(data: bytes) -> int:
    """Return the length of an Ogg file. Its last page states how many samples there were up to
    it."""
    last = data.rfind(b"OggS")
    samples = int.from_bytes(data[last + 6 : last + 14], "little", signed=True)
    rate = _OPUS_RATE
    vorbis = data.find(b"\x01vorbis", 0, 200)
    if vorbis >= 0:
        rate = int.from_bytes(data[vorbis + 12 : vorbis + 16], "little")
    elif data.find(b"OpusHead", 0, 200) < 0:
        return 0
    return round(samples / rate) if rate and samples > 0 else 0


def _wav(data: bytes) -> int:
    bytes_per_s = int.from_bytes(data[28:32], "little")
    return round(len(data) / bytes_per_s) if bytes_per_s else 0
