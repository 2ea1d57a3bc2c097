"""Starts other programs, bounds them, and ends them with the gateway."""
