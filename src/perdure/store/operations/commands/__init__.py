"""Commands, inside the transaction that accepts them: one module for each kind of thing they do."""
