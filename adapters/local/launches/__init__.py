"""Live launches: granted from the queue, ordered about, observed, ended."""
