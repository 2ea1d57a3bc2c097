"""Defines the facts that a session's journal holds, and how they are read back."""
