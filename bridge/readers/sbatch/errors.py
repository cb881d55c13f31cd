"""Errors with sbatch's own words and exit codes."""

from __future__ import annotations

from overspan.bridge.model.errors import InvalidRequest, Place

PREFIX = "sbatch: error: "
FATAL = "sbatch: fatal: "


class SbatchUsage(InvalidRequest):
    """An unknown option or a bad value; sbatch ends with 255."""

    exit_code = 255


class SbatchRefused(InvalidRequest):
    """A script or request that sbatch does not take; it ends with 1."""

    exit_code = 1


def invalid_value(option: str, place: Place | None, remedy: str = "") -> SbatchUsage:
    """The error for a value that an option cannot take."""
    return SbatchUsage(f"{PREFIX}Invalid --{option} specification", place=place, remedy=remedy)


def invalid_number(option: str, written: str, place: Place | None, remedy: str = "") -> SbatchRefused:
    """The error for a value that is not a valid number; unlike other bad values, sbatch exits with 1 for it."""
    return refused_script(f'Invalid numeric value "{written}" for {option}.', place=place, remedy=remedy)


def fatal(line: str, place: Place | None = None, remedy: str = "") -> SbatchRefused:
    """An error that sbatch calls fatal."""
    return SbatchRefused(FATAL + line, place=place, remedy=remedy)


def refused_script(*lines: str, place: Place | None = None, remedy: str = "") -> SbatchRefused:
    """The error of those lines, each as sbatch prints it."""
    return SbatchRefused("\n".join(PREFIX + line for line in lines), place=place, remedy=remedy)


def refused_submission(line: str, place: Place | None, remedy: str = "") -> SbatchRefused:
    """The error that Slurm's controller answers with."""
    return refused_script(f"Batch job submission failed: {line}", place=place, remedy=remedy)
