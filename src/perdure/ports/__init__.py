"""Defines the seams between rooms as protocols. Each docstring is a contract that the suites in
`testkit` and `tests/contract` check."""
