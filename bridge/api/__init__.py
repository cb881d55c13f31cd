"""HTTP over a unix socket: routes, the event stream, and the daemon's process. `build_app` is in `app`."""
