"""The app: configuration, wiring and life cycle; the one room that sees the others together."""
