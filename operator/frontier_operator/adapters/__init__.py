"""Everything that talks to the API server or to Prometheus."""
