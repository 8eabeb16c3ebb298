"""A level-triggered controller runtime: reflect, store, queue, reconcile, apply. It knows no kind of its own."""
