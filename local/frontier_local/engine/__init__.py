"""The simulated engine: vLLM's command line, API and metrics over a physical model of serving."""
