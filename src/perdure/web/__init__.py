"""Serves the HTTP API, the web chat and the console."""
