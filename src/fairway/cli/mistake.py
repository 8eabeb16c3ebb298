"""What a user got wrong, or what is not as a user expects: told in words, exit code 2, never a traceback."""


class Mistake(Exception):
    """The message names what is wrong and what to do about it; `bare` ones say themselves where it is wrong."""

    def __init__(self, message: str, *, bare: bool = False) -> None:
        super().__init__(message)
        self.bare = bare
