"""Holds the tools that need nothing but the gateway itself."""
