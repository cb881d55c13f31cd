"""Options of the commands that read files and command lines alike: one table for each command."""
