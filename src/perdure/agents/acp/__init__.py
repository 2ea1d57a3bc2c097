"""Runs external agents that speak ACP, the Agent Client Protocol."""
