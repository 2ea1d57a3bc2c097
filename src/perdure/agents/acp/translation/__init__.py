"""Translates between a turn and what is said over the protocol. Nothing here does I/O."""
