"""Holds the tools by which external agents use files and terminals through the gateway."""
