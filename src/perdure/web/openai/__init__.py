"""Serves OpenAI's APIs under `/v1`."""
