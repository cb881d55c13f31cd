"""What follows: `reduce(job, event)` gives the next facts, `decide(job, now)` what to do. Pure."""
