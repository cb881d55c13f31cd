"""From pods and nodes to the events of launches. Mostly pure."""
