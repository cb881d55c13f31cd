"""Widgets of `span top`."""
