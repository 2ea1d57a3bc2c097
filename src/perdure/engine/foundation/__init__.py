"""What every part of the engine stands on: tasks, waits, leases, wake-ups, and writes that are
tried again."""
