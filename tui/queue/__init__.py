"""What `span top` shows of the queue, as data: rows, their tree, filters, sorting. Nothing here imports Textual."""
