"""Translates emoji into the names that Slack uses for reactions.

Slack takes names, not characters. The table holds what the gateway and its agents use; any other
emoji can be given by its name, as in `:eyes:`.
"""

import re
from typing import Final

from perdure.domain.errors import Permanent

_NAME: Final = re.compile(r":?([a-z0-9_+'-]+):?\Z")
# Asks for the colourful form of a character. It is not part of the emoji's name.
_VARIATION: Final = "\ufe0f"
_NAMES: Final = {
    "👀": "eyes",
    "✅": "white_check_mark",
    "☑": "ballot_box_with_check",
    "✔": "heavy_check_mark",
    "❌": "x",
    "✖": "heavy_multiplication_x",
    "⛔": "no_entry",
    "🚫": "no_entry_sign",
    "🛑": "octagonal_sign",
    "⚠": "warning",
    "❗": "exclamation",
    "❓": "question",
    "⏳": "hourglass_flowing_sand",
    "⌛": "hourglass",
    "⏰": "alarm_clock",
    "⏸": "double_vertical_bar",
    "⏹": "black_square_for_stop",
    "▶": "arrow_forward",
    "🔄": "arrows_counterclockwise",
    "🔁": "repeat",
    "👍": "+1",
    "👎": "-1",
    "👌": "ok_hand",
    "👏": "clap",
    "🙏": "pray",
    "👋": "wave",
    "💪": "muscle",
    "🤝": "handshake",
    "🤔": "thinking_face",
    "🤖": "robot_face",
    "🧠": "brain",
    "😀": "grinning",
    "😄": "smile",
    "😂": "joy",
    "😊": "blush",
    "😍": "heart_eyes",
    "😢": "cry",
    "😮": "open_mouth",
    "😱": "scream",
    "❤": "heart",
    "🔥": "fire",
    "✨": "sparkles",
    "⭐": "star",
    "🎉": "tada",
    "💯": "100",
    "💡": "bulb",
    "🚀": "rocket",
    "🐛": "bug",
    "🔧": "wrench",
    "🔍": "mag",
    "📌": "pushpin",
    "📝": "memo",
    "✍": "writing_hand",
    "💬": "speech_balloon",
    "⚡": "zap",
    "🆗": "ok",
}


def name_of(emoji: str) -> str:
    """Return Slack's name for an emoji. Raises `Permanent` if it is not known."""
    bare = emoji.replace(_VARIATION, "")
    if bare in _NAMES:
        return _NAMES[bare]
    if found := _NAME.match(emoji):
        return found[1]
    raise Permanent(f"Slack's name for {emoji} is not known here; give its name, as in :eyes:")
