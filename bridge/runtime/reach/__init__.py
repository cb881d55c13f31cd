"""The program by which a trial finds out whether two clusters' tasks reach each other."""
