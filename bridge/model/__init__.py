"""Values: jobs, tasks, attempts, states, events, ids, sizes. Standard library only, no effects."""
