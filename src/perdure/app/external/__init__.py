"""Holds the external agents of a node."""
