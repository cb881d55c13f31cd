"""From a launch to the objects that it is on a cluster. Pure."""
