"""Keeps conversations and their sessions: addresses, moves, recency and summaries."""
