"""Describes the ports through which answers go out."""
