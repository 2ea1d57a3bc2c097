"""Discord: one bot in servers, threads and direct messages."""
