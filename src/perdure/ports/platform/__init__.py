"""Describes what a chat platform must be able to do."""
