"""The demo agent: it answers offline, the same way each time."""
