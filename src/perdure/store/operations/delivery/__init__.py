"""Keeps the outbox: parts, their receipts and doubts, notices, and what could not be delivered."""
