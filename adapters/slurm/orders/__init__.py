"""Orders on native jobs: command lines, their delivery, and their answers."""
