"""`span check`: the probes of a cluster, and the findings from their answers."""
