"""Holds what tests need: fakes, contract suites and the crash simulator. It is shipped for the
authors of adapters."""
