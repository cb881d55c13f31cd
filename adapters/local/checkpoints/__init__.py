"""Checkpoint folders of this machine, read directly; inotify(7) tells when."""
