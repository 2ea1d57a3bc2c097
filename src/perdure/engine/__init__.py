"""The engine: the pumps and the turn runner, speaking only to ports."""
