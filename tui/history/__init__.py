"""What `span top` shows of past jobs, as data: what is asked of the daemon, page by page, and what came. Pure."""
