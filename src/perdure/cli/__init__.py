"""The cli: parse, call the app or a running node, print."""
