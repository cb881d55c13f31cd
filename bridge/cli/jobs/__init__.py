"""Commands about jobs, each with `run(call) -> exit code`: job files, logs, orders, schedules."""
