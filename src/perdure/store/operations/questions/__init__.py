"""Keeps what agents ask people: questions, grants, and calls whose fate is unknown."""
