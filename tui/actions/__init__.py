"""Orders about jobs: what they are called, what they ask, how they are sent and what became of them."""
