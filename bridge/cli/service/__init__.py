"""Commands about the daemon and this installation, each with `run(call) -> exit code`."""
