"""Makes pictures fit at once. A process for each, as in a gateway, would take too long for the many
lives of the simulator."""

from typing import Final

from perdure.domain.reading.pictures import is_picture
from perdure.domain.reading.texts import FileReading
from perdure.ports.records.media import FileSource, ReadsFiles

FITTED: Final = b"\x89PNG\r\n\x1a\n" + bytes(40)


class InstantPictures:
    """Implements `ReadsFiles`: answers with the same picture for any, and lets another reader read
    the other files."""

    def __init__(self, others: ReadsFiles) -> None:
        self._others = others

    async def read(self, source: FileSource) -> FileReading:
        """Return the picture that every picture becomes, or what a file says."""
        if is_picture(source.mime):
            return FileReading(picture=FITTED)
        return await self._others.read(source)
