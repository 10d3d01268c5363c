"""The imperative shell around the core: one pass, and the loop that repeats it."""
