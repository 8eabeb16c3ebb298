"""ELF files: which libraries they load, and what of them nobody needs at run time."""

import struct
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from rig.errors import RigError
from rig.packages import program

MAGIC = b"\x7fELF"
PROGRAM_INTERPRETER = 3
# e_phoff, e_shoff, and from e_phentsize to e_shstrndx, of a 64-bit little-endian header.
HEADER_SIZE = 64
OFFSETS = struct.Struct("<QQ")
COUNTS = struct.Struct("<5H")


def loader_of(executable: Path) -> str:
    """The dynamic loader that the program asks for."""
    data = executable.read_bytes()
    for kind, offset, size in _segments(data, executable):
        if kind == PROGRAM_INTERPRETER:
            return data[offset : offset + size].rstrip(b"\0").decode()
    raise RigError(f"{executable} is linked statically and cannot load extension modules")


def without_sections(data: bytes, name: Path) -> bytes:
    """The file up to the end of what is loaded: symbols and debug information lie behind it.

    Only the program headers count when a program runs, so the section headers can go with the sections.
    """
    end = max(offset + size for _, offset, size in _segments(data, name))
    header = bytearray(data[:HEADER_SIZE])
    program_headers, _ = OFFSETS.unpack_from(header, 32)
    entry_size, count, section_size, _, _ = COUNTS.unpack_from(header, 54)
    OFFSETS.pack_into(header, 32, program_headers, 0)
    COUNTS.pack_into(header, 54, entry_size, count, section_size, 0, 0)
    return bytes(header) + data[HEADER_SIZE : max(end, program_headers + entry_size * count)]


def libraries_of(files: Sequence[Path]) -> dict[str, Path]:
    """Every library that loading these files brings in, by the name it is asked for."""
    if not files:
        return {}
    command = [str(program("ldd")), *map(str, files)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    found: dict[str, Path] = {}
    missing: list[str] = []
    for line in answer.stdout.splitlines():
        name, arrow, rest = line.strip().partition(" => ")
        if not arrow:
            continue
        if rest.startswith("not found"):
            missing.append(name)
        elif rest.startswith("/"):
            found[name] = Path(rest.rpartition(" (")[0] or rest)
    lost = sorted(set(missing) - {name for name in missing if _beside(name, files)})
    if lost:
        raise RigError(
            f"the libraries {', '.join(lost)} are not on this machine", fix="install them, or drop what asks"
        )
    return found


def _beside(name: str, files: Iterable[Path]) -> bool:
    """A library that is itself among the files: it will be found once the one that brings it is loaded."""
    return any(file.name == name for file in files)


def _segments(data: bytes, name: Path) -> list[tuple[int, int, int]]:
    """Kind, offset and size in the file of every program header."""
    if data[:6] != MAGIC + b"\x02\x01":
        raise RigError(f"{name} is no 64-bit little-endian ELF file")
    program_headers, _ = OFFSETS.unpack_from(data, 32)
    entry_size, count, *_ = COUNTS.unpack_from(data, 54)
    found = []
    for index in range(count):
        at = program_headers + index * entry_size
        kind, _flags, offset, _address, _physical, size = struct.unpack_from("<IIQQQQ", data, at)
        found.append((kind, offset, size))
    return found
