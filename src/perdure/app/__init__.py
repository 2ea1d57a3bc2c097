"""Turns a configuration into a running node, and operates it. This is the one room that imports all
the others."""
