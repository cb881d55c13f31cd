"""Renders a launch as the sbatch command and the script of a native job. Pure."""
