"""The Fairway image of this checkout: `python -m rig.fairwayimage fairway:dev`."""

import argparse
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rig.errors import RigError
from rig.image import Entry
from rig.pyimage import python_image
from rig.state import REPOSITORY

REFERENCE = "fairway:dev"
REQUIREMENTS = REPOSITORY / "requirements" / "runtime.txt"


def fairway_image(reference: str = REFERENCE, *, files: Mapping[str, Entry] | None = None) -> Path:
    """The archive of an image whose program is `fairway`, built from the sources as they are; `files` lie over it."""
    with tempfile.TemporaryDirectory(prefix="fairway-wheel-") as directory:
        wheel = _wheel(Path(directory))
        return python_image(
            reference=reference,
            entrypoint=["python", "-m", "fairway"],
            requirements=REQUIREMENTS,
            wheel=wheel,
            files=files,
            ports=(8080, 8081),
            labels={"org.opencontainers.image.title": "fairway", "org.opencontainers.image.licenses": "Apache-2.0"},
        )


def _wheel(directory: Path) -> Path:
    uv = shutil.which("uv", path=sysconfig.get_path("scripts")) or shutil.which("uv")
    if uv is None:
        raise RigError("uv is not installed", fix="make unit, which prepares .venv")
    command = [uv, "build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", str(directory)]
    built = subprocess.run([*command, str(REPOSITORY)], capture_output=True, text=True, check=False)
    if built.returncode != 0:
        raise RigError(f"the wheel could not be built:\n{built.stderr.strip()}")
    (wheel,) = directory.glob("*.whl")
    return wheel


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m rig.fairwayimage", description=__doc__)
    parser.add_argument("reference", nargs="?", default=REFERENCE, help="name of the image (default: %(default)s)")
    parser.add_argument("--output", type=Path, help="where to put the archive (default: build/NAME.tar)")
    options = parser.parse_args()
    try:
        archive = fairway_image(options.reference)
    except RigError as error:
        print(f"image: {error}", file=sys.stderr)
        return 2
    name = options.reference.replace("/", "_").replace(":", "_")
    output = options.output or REPOSITORY / "build" / f"{name}.tar"
    output.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(archive, output)
    print(
        f"{output}  {output.stat().st_size / 1e6:.0f} MB   load it with `docker load -i` or `python -m rig image load`"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
