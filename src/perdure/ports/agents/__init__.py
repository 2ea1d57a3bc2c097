"""Defines the ports around agents that run as programs of their own."""
