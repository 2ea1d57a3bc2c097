"""Implements the ports of delivery to platforms."""
