"""The async loops of the daemon: submit, dispatch, observe, carry out orders, wait for times, remember history.

One event loop, one writer. Every change of a job goes through `recording.Recorder`, which commits before anybody
sees it.
"""
