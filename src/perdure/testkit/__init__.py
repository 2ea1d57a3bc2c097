"""The testkit: fakes, contract suites and the crash simulator, shipped for adapter authors."""
