"""Measurement through Prometheus: queries, windows and the values read from them."""
