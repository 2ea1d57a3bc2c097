"""Matrix: rooms, threads, edits and files over the client-server API, encrypted where asked."""
