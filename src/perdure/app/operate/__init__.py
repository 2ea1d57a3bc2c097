"""Finds the node of a home and asks it, or asks the store if no node runs."""
