"""Holds what each transaction does: every public function is a generator of statements."""
