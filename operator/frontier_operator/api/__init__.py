"""The resources: names, models, conditions and reasons."""
