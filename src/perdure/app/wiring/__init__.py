"""Makes the parts of a node from the configuration, and puts them together."""
