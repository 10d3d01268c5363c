"""The Kubernetes operator: observes, decides, applies and reports."""
