"""Serves what operators read and do: health, metrics, records, tokens, and stopping the node."""
