"""The life of launches: objects made, started together, ordered about, let go."""
