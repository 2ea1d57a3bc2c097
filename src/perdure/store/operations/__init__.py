"""Each public function here is one transaction, as a generator of statements."""
