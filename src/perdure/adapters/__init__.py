"""The adapters: one package per chat platform."""
