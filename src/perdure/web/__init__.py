"""Serves the HTTP API and the web chat."""
