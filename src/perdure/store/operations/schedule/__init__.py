"""Keeps people's jobs, finds those that are due, and starts their runs."""
