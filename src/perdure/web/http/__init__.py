"""Serves HTTP within bounds: connections, bodies in, answers out."""
