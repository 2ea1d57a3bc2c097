"""Describes what messages bring besides words: forwards, stickers, and who speaks."""
