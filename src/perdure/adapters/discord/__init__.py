"""Connects Perdure to Discord: one bot account in servers, threads and direct messages."""
