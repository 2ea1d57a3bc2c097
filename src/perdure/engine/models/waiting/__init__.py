"""Decides how long calls wait for agents that are away, and for accounts that take no more."""
