"""Parameter catalogues of inference engines: what a knob is called and what it may be combined with."""
