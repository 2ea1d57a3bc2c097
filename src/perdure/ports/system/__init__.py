"""Describes the ports of time and randomness, what the process may ask of its system, and how what
is scarce there is shared."""
