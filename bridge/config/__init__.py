"""Configuration: the files of the user and the site, and the paths of a daemon."""
