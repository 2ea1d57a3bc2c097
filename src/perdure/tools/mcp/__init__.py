"""Speaks to tool servers by the Model Context Protocol, and makes their tools those of agents."""
