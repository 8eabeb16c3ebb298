import fcntl
import io
import stat
import sys
import threading
from pathlib import Path

import pytest

from rig.errors import CannotRunError, RigError
from rig.gomodule import GoModule, discard_private_caches, failure
from rig.progress import Progress

GO_MOD = "module example.test/x\n\ngo 1.20\n\nrequire example.test/dependency v1.2.3\n"
# Stands in for the compiler, whose real run takes minutes; what is tested is what is made of its words.
FAKE_GO = """#!/bin/sh
'''''exec' '{python}' "$0" "$@"
' '''
import pathlib, sys
if sys.argv[1] == "env":
    print("go1.26.0")
elif sys.argv[1] == "list":
    print("a\\nb\\nexample.test/x")
else:
    print("go: downloading something v1", file=sys.stderr)
    print("a\\nb\\nexample.test/x", file=sys.stderr)
    {fail}
    out = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
    count = pathlib.Path({count!r})
    count.write_text(count.read_text() + "x" if count.exists() else "x")
    program = out / "tool"
    program.write_text(" ".join(sys.argv))
    program.chmod(0o755)
"""


@pytest.fixture
def module(tmp_path: Path) -> GoModule:
    source = tmp_path / "tool"
    source.mkdir()
    (source / "go.mod").write_text(GO_MOD)
    (source / "go.sum").write_text("")
    (source / "main.go").write_text("package main")
    return GoModule(
        source=source,
        title="a tool",
        main_dependency="example.test/dependency",
        programs=("tool",),
        cost="no time",
        stamp_version_into=("example.test/version",),
    )


def environment(tmp_path: Path, *, fail: str = "pass") -> dict[str, str]:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir(exist_ok=True)
    go.write_text(FAKE_GO.format(python=sys.executable, fail=fail, count=str(tmp_path / "count")))
    go.chmod(0o755)
    return {"PATH": str(go.parent), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def progress() -> tuple[Progress, io.StringIO]:
    stream = io.StringIO()
    return Progress(stream), stream


def test_a_module_is_built_once(module: GoModule, tmp_path: Path) -> None:
    shown, stream = progress()
    environ = environment(tmp_path)
    assert not module.is_built(environ)
    directory = module.ensure(progress=shown, environ=environ)
    assert (directory / "tool").stat().st_mode & stat.S_IXUSR
    assert module.ensure(progress=shown, environ=environ) == directory
    assert (tmp_path / "count").read_text() == "x"
    assert "building a tool" in stream.getvalue()
    assert module.figures(environ)["version"] == "v1.2.3"
    assert {path.name for path in directory.parent.iterdir()} == {directory.name, "build.lock"}


def test_a_changed_source_is_another_build(module: GoModule, tmp_path: Path) -> None:
    before = module.cache_key()
    assert "v1.2.3" in before
    for name in ("main.go", "go.sum", "go.mod", "other.go"):
        path = module.source / name
        path.write_text((path.read_text() if path.exists() else "") + "// changed\n")
        assert module.cache_key() != before
        before = module.cache_key()


def test_two_that_want_it_build_it_once(module: GoModule, tmp_path: Path) -> None:
    environ = environment(tmp_path, fail="import time; time.sleep(0.3)")
    threads = [
        threading.Thread(target=module.ensure, kwargs={"progress": Progress(quiet=True), "environ": environ})
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert module.is_built(environ)
    assert (tmp_path / "count").read_text() == "x"


def test_the_version_is_stamped(module: GoModule, tmp_path: Path) -> None:
    directory = module.ensure(progress=Progress(quiet=True), environ=environment(tmp_path))
    assert "-X example.test/version.gitVersion=v1.2.3" in (directory / "tool").read_text()


def test_a_failed_build_leaves_nothing_and_shows_the_compilers_words(module: GoModule, tmp_path: Path) -> None:
    environ = environment(tmp_path, fail="print('main.go:1: no such thing', file=sys.stderr); sys.exit(1)")
    with pytest.raises(RigError, match="no such thing") as caught:
        module.ensure(progress=Progress(quiet=True), environ=environ)
    assert not isinstance(caught.value, CannotRunError)
    assert not module.is_built(environ)
    assert [path.name for path in (tmp_path / "cache/fairway/rig").iterdir()] == ["build.lock"]


@pytest.mark.parametrize(
    "line",
    [
        'Get "https://proxy": dial tcp: lookup proxy: no such host',
        "main.go:25:2: module lookup disabled by GOPROXY=off",
        "k8s.io/api@v0.36.4: reading https://proxy/k8s.io/api/@v/v0.36.4.zip: 403 Forbidden",
        "x: no space left on device",
    ],
)
def test_a_machine_that_cannot_build_is_told_apart_from_sources_that_do_not(line: str) -> None:
    assert isinstance(failure("it failed", [line]), CannotRunError)
    assert not isinstance(failure("it failed", ["main.go:3: undefined: x"]), CannotRunError)


def test_a_module_without_its_dependency_is_an_error(module: GoModule) -> None:
    (module.source / "go.mod").write_text("module x\n\ngo 1.20\n")
    with pytest.raises(RigError, match=r"example\.test/dependency"):
        _ = module.version


def test_figures_that_nobody_took_are_empty(module: GoModule, tmp_path: Path) -> None:
    assert module.figures({"XDG_CACHE_HOME": str(tmp_path)}) == {}


def test_caches_of_a_fetched_compiler_do_not_stay(tmp_path: Path) -> None:
    cache = tmp_path / "fairway" / "rig"
    locked = cache / "go-1.26.6-caches" / "modules" / "a@v1"
    locked.mkdir(parents=True)
    (locked / "file").write_text("")
    locked.chmod(0o555)
    (cache / "go-1.26.6").mkdir()
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    # Not under the feet of somebody who builds.
    with (cache / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        discard_private_caches(environ)
        assert (locked / "file").exists()
    discard_private_caches(environ)
    assert {path.name for path in cache.iterdir()} == {"go-1.26.6", "build.lock"}
    discard_private_caches({"XDG_CACHE_HOME": str(tmp_path / "nowhere")})
