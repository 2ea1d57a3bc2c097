"""Serves the tools of the gateway to external agents, each session under a secret of its own."""
