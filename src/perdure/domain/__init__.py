"""Holds the values, events, state machines and rules of Perdure. All of it is pure: no I/O, no
clock, no randomness."""
