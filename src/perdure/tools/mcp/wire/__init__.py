"""Speaks the wire of tool servers, with the official package, which nothing else imports."""
