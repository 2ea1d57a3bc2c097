"""Writes turns: queues, claims, interrupts, recovers and settles them."""
