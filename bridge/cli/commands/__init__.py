"""One module a command, each with `run(call) -> exit code`; the table is in overspan.bridge.cli.program."""
