"""Connects chat platforms with AI agents, and keeps every conversation between them complete."""

__version__ = "0.33.0"
