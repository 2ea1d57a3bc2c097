"""The seams, as Protocols. Each docstring is the contract that the suites in `testkit` check."""
