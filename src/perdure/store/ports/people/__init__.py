"""Implements the ports of people and places."""
