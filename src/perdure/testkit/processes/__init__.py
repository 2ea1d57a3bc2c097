"""Runs real processes for tests: gateways, commands, file servers and a faulty proxy."""
