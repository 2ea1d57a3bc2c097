"""Tools that need nothing but the gateway itself."""
