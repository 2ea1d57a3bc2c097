"""Provides the agents and tools of a simulated world that stop in the middle."""
