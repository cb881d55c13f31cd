"""Keys: the one table of them, and what is made of it: bindings, footer, help, palette, the page in the docs."""
