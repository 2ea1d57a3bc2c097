"""Implements the ports on the store: each method runs one transaction or one snapshot of
`operations/`. The contracts are in `perdure/ports`."""
