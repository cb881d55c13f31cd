"""From a launch to the words and the script of a native job. Pure."""
