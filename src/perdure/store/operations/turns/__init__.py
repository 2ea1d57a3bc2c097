"""Writes turns: queued, claimed, interrupted, recovered, and settled."""
