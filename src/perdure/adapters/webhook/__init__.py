"""Programs talk to agents by signed HTTP requests, and get the answer posted back or ask for it."""
