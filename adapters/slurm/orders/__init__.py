"""Orders on native jobs: the words, the call, what its answer means."""
