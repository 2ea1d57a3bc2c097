"""Finds the node of a home and asks it, or asks the store where none runs."""
