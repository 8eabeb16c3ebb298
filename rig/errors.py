"""What the rig says when it cannot go on."""


class RigError(Exception):
    """The person at the keyboard has to change something: what is wrong, and the exact fix."""

    def __init__(self, problem: str, *, fix: str = "") -> None:
        super().__init__(f"{problem}\n  fix: {fix}" if fix else problem)
        self.problem = problem
        self.fix = fix


class CannotRunError(RigError):
    """This machine, as it is, cannot run the rig. Tests that need it are skipped loudly; any other error fails them."""
