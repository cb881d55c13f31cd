"""What the terminal UI asks the daemon, and how it is told of changes: all of it in threads of their own."""
