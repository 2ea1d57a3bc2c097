"""Holds the operations that order errands: after a turn, and for agents that give work away."""
