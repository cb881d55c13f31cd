"""A group as one allocation: placement, script, stories, orders."""
