"""Keeps the processes of external agents, and lends their sessions."""
