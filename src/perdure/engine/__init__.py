"""Holds the pumps and the turn runner. The engine speaks to the outside through ports only."""
