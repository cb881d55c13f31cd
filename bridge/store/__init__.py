"""The daemon's database: jobs, outbox and timeline; and the lease of the state directory.

Import `overspan.bridge.store.store` only in the daemon: it loads SQLAlchemy. `lease` and `records` are light.
"""
