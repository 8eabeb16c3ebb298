"""A thin, typed Kubernetes client: resources, access, requests, errors."""
