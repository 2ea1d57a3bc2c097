"""Describes what messages bring besides words: forwards, stickers, and the names of their
senders."""
