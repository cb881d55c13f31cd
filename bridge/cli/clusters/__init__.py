"""Commands about clusters, each with `run(call) -> exit code`: what works there, and what is left there."""
