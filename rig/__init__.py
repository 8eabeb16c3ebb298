"""The rig: a real Kubernetes on one machine, for tests and for people without a cluster."""
