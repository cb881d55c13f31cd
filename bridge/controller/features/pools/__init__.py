"""Pools: keeps their workers, which are jobs, and hands what those say to the pool's adapter."""
