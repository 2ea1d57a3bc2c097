"""Makes room for turns that are longer than the model's window, and writes summaries."""
