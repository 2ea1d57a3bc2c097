"""Holds the contract suite of adapters, and what a platform under test must offer to it."""
