"""The node agent: runs pods as local processes."""
