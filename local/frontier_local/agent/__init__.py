"""The node agent: registers nodes and runs the pods bound to them as processes of this machine.

It is to the embedded cluster what the kubelet, kube-proxy and the container runtime are to a real node, with one
difference that shapes everything here: a process has no mount, network or user namespace. `pathmap` says what follows
for mounted paths; the node's annotation `frontier-operator.dev/not-enforced` lists what is accepted without effect, and
`refusals` refuses what cannot be done at all. Nothing here knows the operator or the tuner.
"""
