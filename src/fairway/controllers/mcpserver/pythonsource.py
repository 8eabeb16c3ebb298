"""What is wrong with the Python source of inline tools, before anything runs it. Pure."""

import ast


def problem_of(source: bytes) -> str:
    """With the line; empty if it compiles."""
    try:
        ast.parse(source.decode())
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:  # null bytes; nesting beyond the parser's stack
        return str(error) or "nested too deeply"
    return ""
