"""Tells those who watch a conversation what has become durable."""
