"""Makes requests for models from the journal."""
