"""Shows answers on chat platforms: previews while a turn runs, and the final parts from the
outbox."""
