import hashlib
import json
import os
import tarfile
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.image import (
    Entry,
    ImageConfig,
    architecture,
    build_image,
    build_layer,
    image_identity,
    load_image,
    snapshotter,
    tree,
    with_tag,
)
from rig.state import State

CONFIG = ImageConfig(
    entrypoint=["/run"], environment={"B": "2", "A": "1"}, user="1000", ports=[8080], labels={"x": "y"}
)


def members(archive: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(archive) as tar:
        return {member.name: member for member in tar}


def content(archive: Path, name: str) -> bytes:
    with tarfile.open(archive) as tar:
        file = tar.extractfile(name)
        assert file is not None
        return file.read()


def test_an_image_is_what_docker_load_takes(tmp_path: Path) -> None:
    layer = build_layer({"/etc/base": Entry(source=b"base")}, tmp_path / "layer.tar")
    image = build_image(
        reference="localhost/x:1",
        config=CONFIG,
        output=tmp_path / "image.tar",
        layers=[layer],
        files={"/run": Entry(source=b"#!", mode=0o755)},
    )
    (manifest,) = json.loads(content(image, "manifest.json"))
    assert manifest["RepoTags"] == ["localhost/x:1"]
    config = content(image, manifest["Config"])
    assert manifest["Config"] == hashlib.sha256(config).hexdigest() + ".json"
    described = json.loads(config)
    for name, digest in zip(manifest["Layers"], described["rootfs"]["diff_ids"], strict=True):
        assert "sha256:" + hashlib.sha256(content(image, name)).hexdigest() == digest
    assert described["config"] == {
        "Entrypoint": ["/run"],
        "Env": ["A=1", "B=2"],
        "ExposedPorts": {"8080/tcp": {}},
        "Labels": {"x": "y"},
        "User": "1000",
        "WorkingDir": "/",
    }
    # Asking what it is must not mean reading all of it.
    assert next(iter(members(image))) == "manifest.json"


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    digests = set()
    for name, order in (("one", 1), ("two", -1)):
        root = tmp_path / name
        root.mkdir()
        for file in ["b", "a", "c"][::order]:
            (root / file).write_text(file)
            os.utime(root / file, (order + 5, order + 5))
        image = build_image(
            reference="x", config=CONFIG, output=tmp_path / f"{name}.tar", files=dict(list(tree(root).items())[::order])
        )
        digests.add(hashlib.sha256(image.read_bytes()).hexdigest())
    assert len(digests) == 1


def test_layers_say_who_owns_what(tmp_path: Path) -> None:
    layer = build_layer(
        {
            "/home/me": Entry(mode=0o700, uid=1000),
            "/home/me/file": Entry(source=b"x", mode=0o600, uid=1000),
            "/home/link": Entry(link="me/file"),
        },
        tmp_path / "layer.tar",
    )
    found = members(layer.archive)
    assert found["home"].isdir()
    assert (found["home"].uid, found["home"].mode) == (0, 0o755)
    assert (found["home/me"].uid, found["home/me"].mode) == (1000, 0o700)
    assert (found["home/me/file"].uid, found["home/me/file"].mode, found["home/me/file"].size) == (1000, 0o600, 1)
    assert found["home/link"].linkname == "me/file"
    assert {member.mtime for member in found.values()} == {0}
    assert layer.digest == hashlib.sha256(layer.archive.read_bytes()).hexdigest()


def test_a_directory_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "run").write_text("x")
    (tmp_path / "sub" / "run").chmod(0o755)
    (tmp_path / "gone").symlink_to("nowhere")
    found = tree(tmp_path, at="/opt/app")
    assert found.keys() == {"/opt/app/sub", "/opt/app/sub/run", "/opt/app/gone"}
    assert found["/opt/app/sub/run"].mode == 0o755
    assert found["/opt/app/gone"].link == "nowhere"


def test_a_socket_cannot_be_in_an_image(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(RigError, match="fifo"):
        tree(tmp_path)


@pytest.mark.parametrize("name", ["/", "/a/../../etc/passwd", "../x"])
def test_no_path_leads_out_of_an_image(tmp_path: Path, name: str) -> None:
    with pytest.raises(RigError, match="no path inside"):
        build_layer({name: Entry(source=b"")}, tmp_path / "layer.tar")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("reference", ["", "a b", "x\n"])
def test_a_bad_name_is_refused(tmp_path: Path, reference: str) -> None:
    with pytest.raises(RigError, match="no image reference"):
        build_image(reference=reference, config=CONFIG, output=tmp_path / "x.tar", files={"/a": Entry(source=b"")})


def test_an_empty_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="empty"):
        build_image(reference="x", config=CONFIG, output=tmp_path / "x.tar")


@pytest.mark.parametrize(
    ("given", "full"),
    [("x", "x:latest"), ("x:1", "x:1"), ("localhost:5000/x", "localhost:5000/x:latest"), ("h:1/x:2", "h:1/x:2")],
)
def test_a_name_without_a_tag_gets_the_one_that_pods_ask_for(given: str, full: str) -> None:
    assert with_tag(given) == full


def test_what_is_no_image_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RigError, match=r"no image .*nope"):
        image_identity(tmp_path / "nope")
    text = tmp_path / "text"
    text.write_text("hello")
    with pytest.raises(RigError, match="no docker-archive"):
        image_identity(text)
    with tarfile.open(tmp_path / "other.tar", "w"):
        pass
    with pytest.raises(RigError, match="no docker-archive"):
        image_identity(tmp_path / "other.tar")


def test_images_need_a_node(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="rig up --node"):
        load_image(State(root=tmp_path), tmp_path / "x.tar")


def test_layers_are_copied_where_an_overlay_cannot_lie_on_another() -> None:
    mounts = "overlay / overlay rw 0 0\n/dev/vda /data ext4 rw 0 0\ntmpfs /data/x tmpfs rw 0 0\n"
    assert snapshotter(Path("/somewhere"), mounts) == "native"
    assert snapshotter(Path("/data/rig"), mounts) == "overlayfs"
    assert snapshotter(Path("/data/x/rig"), mounts) == "native"


def test_machines_have_the_names_that_images_use() -> None:
    assert (architecture("x86_64"), architecture("aarch64"), architecture("riscv64")) == ("amd64", "arm64", "riscv64")
