"""Holds the tool that runs commands."""
