"""Reads what was said on Discord while nobody listened."""
