"""Holds the crash simulator: a world that survives deaths, and the faults in it."""
