"""Describes the ports of time and randomness, and what the process may ask of its system."""
