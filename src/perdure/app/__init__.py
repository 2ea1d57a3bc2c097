"""Configures, assembles and runs a node. This is the one room that imports all the others."""
