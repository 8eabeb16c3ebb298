"""The parts of the documentation that are made from the code, so that they cannot be of another opinion."""
