"""Reads what is stored: history, search, transcripts, and what operators ask for."""
