"""The places of `span top`, one for each digit: a widget with its list, its keys and what it asks the daemon."""
