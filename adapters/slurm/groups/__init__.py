"""A group as one allocation: placement, script, projection, orders."""
