"""Implements `perdure mcp`: shows tool servers, and tries them."""
