"""Makes model calls beside those for the turn's own answer."""
