"""One package for each kind: gather what is there, decide what should be (pure), write the difference."""
