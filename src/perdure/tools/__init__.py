"""Holds the tools that an agent may call through the gateway."""
