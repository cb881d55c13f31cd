"""Pure rules of a job: `reduce(job, event)` gives its next facts, `decide(job, now)` what to do. No clock, no I/O."""
