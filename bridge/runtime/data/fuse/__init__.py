"""A folder of an object store as a FUSE file system: read through the store, written to the node's own folder."""
