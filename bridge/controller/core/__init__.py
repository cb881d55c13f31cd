"""The jobs in memory and the loops that keep them going: record, dispatch within limits, observe, release."""
