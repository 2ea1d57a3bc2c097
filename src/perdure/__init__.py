"""Perdure keeps every conversation between people and AI agents whole."""

__version__ = "0.19.0"
