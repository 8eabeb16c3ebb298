"""The user's source: read, executed once as a module, and searched for the functions that are tools."""

import ast
import inspect
import re
import sys
import traceback
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import typing_extensions

MODULE_NAME: Final = "inline_tools"
_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class SourceError(Exception):
    """The user's source cannot be served. The message is one line and names file and line."""

    def __init__(self, path: Path, line: int | None, problem: str) -> None:
        where = path.name if line is None else f"{path.name}:{line}"
        super().__init__(f"{where}: {' '.join(problem.split())}")
        self.line = line


@dataclass(frozen=True, slots=True)
class Function:
    """A public function of the source."""

    name: str
    target: Callable[..., Any]
    line: int | None


@dataclass(frozen=True, slots=True)
class Source:
    """An executed source. `namespace` is the one dict that its functions have as globals."""

    path: Path
    namespace: dict[str, Any]
    functions: tuple[Function, ...]
    doc: str | None


def load_source(path: Path) -> Source:
    """Executes the file. Raises SourceError for whatever is wrong with it, OSError when it cannot be read."""
    code = path.read_bytes()
    try:
        tree = ast.parse(code, filename=str(path))
        compiled = compile(tree, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise SourceError(path, error.lineno, _syntax_problem(error)) from None
    except (ValueError, RecursionError, MemoryError) as error:  # a null byte; nesting too deep for the compiler
        raise SourceError(path, None, f"cannot be compiled: {error}") from None
    namespace = _execute(path, compiled)
    functions = tuple(_functions(path, tree, namespace))
    if not functions:
        raise SourceError(path, None, "no public function is defined here, so there is no tool to serve")
    return Source(path, namespace, functions, ast.get_docstring(tree))


def _execute(path: Path, compiled: Any) -> dict[str, Any]:
    module = ModuleType(MODULE_NAME)
    module.__file__ = str(path)
    # dataclasses, pickle and get_type_hints look a class's module up here
    sys.modules[MODULE_NAME] = module
    directory = str(path.parent)
    if directory not in sys.path:
        sys.path.append(directory)  # last: a neighbour must not hide a module of ours or of the standard library
    try:
        with _complete_typed_dict():
            exec(compiled, module.__dict__)  # noqa: S102 - to run this file is what we are here for
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # user code may raise anything, SystemExit included
        problem = "".join(traceback.format_exception_only(error))
        if isinstance(error, SystemExit):
            problem = f"the source ended the program while it was loaded (exit code {error.code})"
        elif isinstance(error, ModuleNotFoundError):
            problem += " (it can import what the image of the server has installed)"
        raise SourceError(path, _line_in(path, error), problem) from None
    return module.__dict__


@contextmanager
def _complete_typed_dict() -> Iterator[None]:
    """Before Python 3.12 the standard TypedDict forgets which keys are required, so pydantic refuses it."""
    standard = typing.TypedDict
    typing.TypedDict = typing_extensions.TypedDict
    try:
        yield
    finally:
        typing.TypedDict = standard


def _line_in(path: Path, error: BaseException) -> int | None:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return lines[-1] if lines else None


def _syntax_problem(error: SyntaxError) -> str:
    text = (error.text or "").strip()
    return f"{type(error).__name__}: {error.msg}" + (f": {text}" if text else "")


def _functions(path: Path, tree: ast.Module, namespace: dict[str, Any]) -> Iterator[Function]:
    defined = {node.name: node.lineno for node in _definitions(tree.body)}
    for name in _public_names(path, namespace, defined):
        target = namespace[name]
        code = getattr(inspect.unwrap(target), "__code__", None)
        line = defined.get(name, code.co_firstlineno if code is not None and code.co_filename == str(path) else None)
        if not _TOOL_NAME.fullmatch(name):
            raise SourceError(
                path, line, f"{name}: a tool's name may have only letters of ASCII, digits, _ and at most 128"
            )
        yield Function(name, target, line)


def _definitions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions defined at the top level, also under `if`, `try` and `with`."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif not isinstance(node, ast.ClassDef):
            for name in ("body", "orelse", "finalbody"):
                yield from _definitions(getattr(node, name, None) or [])
            for handler in getattr(node, "handlers", []):
                yield from _definitions(handler.body)


def _public_names(path: Path, namespace: dict[str, Any], defined: dict[str, int]) -> list[str]:
    wanted = namespace.get("__all__")
    if wanted is None:
        return [
            name for name, value in namespace.items() if not name.startswith("_") and _is_ours(name, value, defined)
        ]
    if not isinstance(wanted, list | tuple) or not all(isinstance(name, str) for name in wanted):
        raise SourceError(path, None, "__all__ has to be a list of names")
    missing = [name for name in wanted if name not in namespace]
    if missing:
        raise SourceError(path, None, f"__all__ names {', '.join(missing)}, which is not defined")
    return [name for name in dict.fromkeys(wanted) if _is_function(namespace[name])]


def _is_ours(name: str, value: Any, defined: dict[str, int]) -> bool:
    """Defined here, decorated or not; an imported function is somebody else's."""
    if not _is_function(value):
        return False
    return name in defined or (inspect.isfunction(value) and value.__module__ == MODULE_NAME)


def _is_function(value: Any) -> bool:
    return callable(value) and not inspect.isclass(value)
