"""What waits on this machine, in which order, and what it is given: CPUs, memory, GPUs, addresses. Mostly pure."""
