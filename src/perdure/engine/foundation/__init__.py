"""Holds what every part of the engine uses: tasks, waits, leases, wake-ups, and writes that are
retried."""
