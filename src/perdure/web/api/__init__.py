"""Serves the native API of conversations, turns, events and files."""
