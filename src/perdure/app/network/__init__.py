"""Opens connections to other servers: over which proxy, and trusting which authorities."""
