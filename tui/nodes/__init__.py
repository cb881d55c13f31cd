"""What `span top` shows of nodes and partitions, as data. Nothing here imports Textual's widgets."""
