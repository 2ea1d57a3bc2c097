"""Describes the life of a turn: its states, what it needs next, how it ends, and what an
interruption leaves behind."""
