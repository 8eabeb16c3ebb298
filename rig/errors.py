"""What the rig says when it cannot go on."""


class RigError(Exception):
    """The person at the keyboard, or the machine, has to change something: what is wrong, and the exact fix."""

    def __init__(self, problem: str, *, fix: str = "") -> None:
        super().__init__(f"{problem}\n  fix: {fix}" if fix else problem)
        self.problem = problem
        self.fix = fix
