"""From the bytes of a file to what it is and what it says."""
