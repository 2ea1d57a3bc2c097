"""Implements the ports of the store: each method is one transaction or one snapshot of
`operations/`."""
