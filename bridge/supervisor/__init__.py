"""Runs groups beside the work: lifecycle, processes and the journal. Standard library only; also shipped as a zip."""
