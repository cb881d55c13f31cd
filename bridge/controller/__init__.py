"""The daemon's work on jobs: `core` commits and dispatches, `submission` and `orders` take what users ask for.

One event loop, one writer. Every change of a job goes through `core.recording.Recorder`, which commits before it
publishes. `features` are what goes beyond one job on one cluster; `views` are what is shown, and change nothing.
"""
