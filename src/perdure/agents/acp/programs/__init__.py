"""Knows the programs of external agents: how each is started, and what it sees."""
