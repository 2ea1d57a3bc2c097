"""Connects a bot to Matrix: rooms, threads, edits and files over the client-server API.

Encrypted rooms work with the extra that `manifest.py` names.
"""
