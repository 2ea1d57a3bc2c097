"""Serves what operators read and do: health, metrics, records, tokens, and the node's end."""
