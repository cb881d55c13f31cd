"""What things are: jobs, tasks, attempts, states, ids, sizes. Standard library only, no effects."""
