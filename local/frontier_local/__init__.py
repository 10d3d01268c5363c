"""The embedded cluster: a real control plane, a node agent and a simulated engine on one machine."""
