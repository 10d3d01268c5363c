"""The kopf side: thin functions that start, wake and stop loops."""
