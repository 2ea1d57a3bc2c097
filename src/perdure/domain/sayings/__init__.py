"""Holds what the gateway itself says to people, in their languages."""
