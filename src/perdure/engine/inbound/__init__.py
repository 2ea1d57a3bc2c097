"""Takes what people send: keeps platforms connected, decides who may speak, and fetches files."""
