"""Runs one node, from joining the store to a shutdown that takes a bounded time."""
