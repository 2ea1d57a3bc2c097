"""The agents: one package per family of backends that can run a turn."""
