"""Says of what hooks are told."""
