"""What `span top` shows of clusters: their contact and trouble, and the check of one."""
