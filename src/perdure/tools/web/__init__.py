"""Implements the tools that reach the web: `fetch` and `search`."""
