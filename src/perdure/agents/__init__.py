"""Holds the agents, one package for each family of backends that can run a turn."""
