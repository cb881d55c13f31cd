"""The configuration files of the user and the site, and the places on disk."""
