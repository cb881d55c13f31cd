"""Groups across: one launch whose parts are on several clusters."""
