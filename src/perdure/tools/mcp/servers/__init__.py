"""Keeps links to the configured tool servers."""
