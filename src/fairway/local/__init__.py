"""Local mode: the same manifests, controllers and status on one machine, with pods as processes."""
