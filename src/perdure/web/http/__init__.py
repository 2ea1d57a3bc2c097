"""Serves HTTP within bounds: connections, request bodies and answers."""
