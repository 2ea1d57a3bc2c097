"""Plays a model provider: scripted answers on both wires, and the rules of strict providers."""
