"""Adapters (`overspan.adapters`): one package for each kind of cluster, all of them behind `contract`."""
