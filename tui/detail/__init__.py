"""Everything about one job, beside the list or below it."""
