"""Sources: what becomes a tool, and what is said when a source cannot be served."""

import sys
import typing

import pytest

from fairway.tools.source import MODULE_NAME, SourceError, load_source


def names(source):
    return [function.name for function in source.functions]


def test_public_functions_are_tools_in_the_order_in_which_they_stand(loaded):
    source = loaded(
        """
        '''Sums.'''
        import os
        from math import sqrt
        from json import dumps

        LIMIT = 3

        class Thing:
            def method(self): ...

        def second(): ...
        def _private(): ...
        async def first(): ...
        square = lambda x: x * x
        """
    )
    assert names(source) == ["second", "first", "square"]
    assert source.doc == "Sums."
    assert [function.line for function in source.functions] == [11, 13, 14]


def test_what_is_defined_conditionally_counts(loaded):
    source = loaded(
        """
        try:
            import nonsense_that_is_not_there
        except ImportError:
            def fallback(): ...
        if True:
            def yes(): ...
        else:
            def no(): ...
        with open(__file__):
            def inside(): ...
        """
    )
    assert names(source) == ["fallback", "yes", "inside"]


def test_a_decorated_function_stays_a_tool(loaded):
    source = loaded(
        """
        import functools

        def _traced(function):
            @functools.wraps(function)
            def wrapper(*args, **kwargs):
                return function(*args, **kwargs)
            return wrapper

        @_traced
        def traced(a: int): ...

        @functools.lru_cache
        def cached(a: int): ...
        """
    )
    assert names(source) == ["traced", "cached"]


def test_all_says_which_and_in_what_order(loaded):
    source = loaded(
        """
        from os.path import basename
        __all__ = ["b", "basename", "Kind", "_c", "b"]
        class Kind: ...
        def a(): ...
        def b(): ...
        def _c(): ...
        """
    )
    assert names(source) == ["b", "basename", "_c"]


def test_there_is_one_namespace(loaded):
    source = loaded(
        """
        import math
        from dataclasses import dataclass
        FACTOR = 2

        @dataclass
        class Point:
            x: "int"
            other: "Point | None" = None

        def _twice(x): return x * FACTOR
        def area(r: float) -> float: return _twice(math.floor(r))
        def down(n: int) -> int: return 0 if n == 0 else down(n - 1)
        def count() -> int:
            global FACTOR
            FACTOR += 1
            return FACTOR
        def move(p: Point) -> Point: return p
        """
    )
    functions = {function.name: function.target for function in source.functions}
    assert functions["area"](2.5) == 4
    assert functions["down"](5) == 0
    assert functions["count"]() == 3
    assert source.namespace["FACTOR"] == 3
    point = source.namespace["Point"]
    assert typing.get_type_hints(point) == {"x": int, "other": point | None}
    assert sys.modules[MODULE_NAME].__dict__ is source.namespace
    assert source.namespace["__name__"] == MODULE_NAME


def test_a_main_block_is_not_run(loaded):
    assert names(loaded('def a(): ...\nif __name__ == "__main__":\n    raise SystemExit')) == ["a"]


def test_a_neighbour_can_be_imported_and_hides_nothing(write):
    write("VALUE = 7", "neighbour.py")
    write("raise AssertionError('the standard library is meant')", "json.py")
    source = load_source(write("import json\nfrom neighbour import VALUE\ndef a(): return json.dumps(VALUE)"))
    assert source.functions[0].target() == "7"


def test_the_flags_of_this_package_do_not_leak_into_the_source(loaded):
    source = loaded("def a(x: int): ...\n")
    assert source.functions[0].target.__annotations__ == {"x": int}


BROKEN = {
    "syntax": ("def a(:\n    pass", "tools.py:1: SyntaxError: invalid syntax: def a(:"),
    "indentation": ("def a():\npass", "tools.py:2: IndentationError: expected an indented block"),
    "tabs": ("def a():\n\tif 1:\n        x = 1", "tools.py:3: TabError: inconsistent use of tabs and spaces"),
    "module that is not there": ("import os\nimport requests_x", "tools.py:2: ModuleNotFoundError: No module named"),
    "exception": ("x = 1\n\ny = {}['a']\ndef a(): ...", "tools.py:3: KeyError: 'a'"),
    "exception further down": ("def _f():\n    return 1 / 0\n_f()", "tools.py:2: ZeroDivisionError: division by zero"),
    "exception inside a library": ("import json\njson.loads('{')", "tools.py:2: json.decoder.JSONDecodeError"),
    "several lines": ("raise ValueError('a\\nb')", "tools.py:1: ValueError: a b"),
    "exit": ("import sys\nsys.exit(3)", "tools.py:2: the source ended the program while it was loaded (exit code 3)"),
    "no tool": ("import os\n_x = 1", "tools.py: no public function is defined here"),
    "null byte": ("def a(): ...\n\0", "tools.py: SyntaxError: source code string cannot contain null bytes"),
    "too deep": ("x = " + "(" * 500 + ")" * 500, "tools.py:1: SyntaxError: too many nested parentheses"),
    "name of no tool": ("x = 1\ndef größe(): ...", "tools.py:2: größe: a tool's name may have only letters of ASCII"),
    "all is a string": ("__all__ = 'a'\ndef a(): ...", "tools.py: __all__ has to be a list of names"),
    "all names nothing": ("__all__ = ['a', 'b']\ndef a(): ...", "tools.py: __all__ names b, which is not defined"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_source_is_answered_with_one_line_that_says_where(case, write):
    text, expected = BROKEN[case]
    with pytest.raises(SourceError) as caught:
        load_source(write(text))
    said = str(caught.value)
    assert said.startswith(expected)
    assert "\n" not in said
    assert str(write("").parent) not in said
    assert caught.value.__cause__ is None


def test_a_file_in_another_encoding_is_read_as_it_says(tmp_path):
    path = tmp_path / "tools.py"
    path.write_bytes("# coding: latin-1\ndef a(): return 'é'\n".encode("latin-1"))
    assert load_source(path).functions[0].target() == "é"
    path.write_bytes(b"def a(): return '\xff'\n")
    with pytest.raises(SourceError, match="SyntaxError"):
        load_source(path)
