"""Volumes as directories, and mount paths as they read here."""

import base64
import stat
from pathlib import Path

import pytest

from fairway.local.environment import ConfigMissing
from fairway.local.volumes import Volume, materialise, mounts_of, replace_file, rewritten, volumes_of

MOUNTS = {"/etc/fairway/tools": Path("/run/v/tools"), "/tmp": Path("/run/v/tmp"), "/tmp/deep": Path("/run/v/deep")}


def pod(*volumes):
    return {"metadata": {"name": "p", "namespace": "default"}, "spec": {"volumes": list(volumes)}}


def config_map(**data):
    return {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}


def made(tmp_path, volume, obj):
    return volumes_of(pod(volume), tmp_path, lambda *_: obj)[volume["name"]]


@pytest.mark.parametrize(
    ("text", "here"),
    [
        ("/etc/fairway/tools/tools.py", "/run/v/tools/tools.py"),
        ("/etc/fairway/tools", "/run/v/tools"),
        ("--file=/etc/fairway/tools/a", "--file=/run/v/tools/a"),
        ("/tmp:/usr/bin:/tmp/x", "/run/v/tmp:/usr/bin:/run/v/tmp/x"),
        ("/tmp/deep/x", "/run/v/deep/x"),
        ("/etc/fairway/toolsmith", "/etc/fairway/toolsmith"),
        ("http://host/tmp/x", "http://host/tmp/x"),
        ("see /tmp for more", "see /tmp for more"),
        ("", ""),
    ],
)
def test_paths_below_a_mount_are_rewritten_and_nothing_else(text, here):
    assert rewritten(text, MOUNTS) == here


def test_a_config_map_becomes_files(tmp_path):
    volume = made(tmp_path, {"name": "v", "configMap": {"name": "c"}}, config_map(**{"tools.py": "x = 1\n"}))
    materialise([volume])
    assert (tmp_path / "volumes/v/tools.py").read_text() == "x = 1\n"


def test_a_secret_becomes_files_that_only_we_can_read(tmp_path):
    secret = {"kind": "Secret", "metadata": {"name": "s"}, "data": {"key": base64.b64encode(b"hush").decode()}}
    materialise([made(tmp_path, {"name": "v", "secret": {"secretName": "s"}}, secret)])
    path = tmp_path / "volumes/v/key"
    assert path.read_bytes() == b"hush"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_items_pick_and_rename_keys(tmp_path):
    volume = {"name": "v", "configMap": {"name": "c", "items": [{"key": "a", "path": "sub/b"}]}}
    assert dict(made(tmp_path, volume, config_map(a="1", z="2")).files) == {"sub/b": b"1"}


@pytest.mark.parametrize(
    ("volume", "obj", "words"),
    [
        ({"name": "v", "configMap": {"name": "c"}}, None, "volume v asks for ConfigMap c, but there is none"),
        (
            {"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": "k"}]}},
            config_map(),
            "volume v asks for key k of ConfigMap c, which has none",
        ),
        ({"name": "v", "hostPath": {"path": "/"}}, None, "volume v: local mode cannot mount hostPath"),
        ({"name": "v", "configMap": {"name": "c"}}, config_map(**{"../up": "x"}), "'../up' of ConfigMap c is no file"),
        (
            {"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": "/etc/passwd"}]}},
            config_map(k="x"),
            "'/etc/passwd' of ConfigMap c is no file name",
        ),
    ],
)
def test_a_volume_that_cannot_be_made_says_why(tmp_path, volume, obj, words):
    with pytest.raises(ConfigMissing, match=words):
        made(tmp_path, volume, obj)


def test_an_optional_volume_without_its_object_is_empty(tmp_path):
    volume = made(tmp_path, {"name": "v", "configMap": {"name": "c", "optional": True}}, None)
    materialise([volume])
    assert list((tmp_path / "volumes/v").iterdir()) == []


def test_what_left_the_config_map_leaves_the_directory(tmp_path):
    materialise([Volume(tmp_path / "v", {"a": b"1", "b": b"2"}, managed=True)])
    materialise([Volume(tmp_path / "v", {"b": b"3"}, managed=True)])
    assert {p.name: p.read_bytes() for p in (tmp_path / "v").iterdir()} == {"b": b"3"}


def test_a_scratch_directory_keeps_what_the_program_wrote(tmp_path):
    scratch = Volume(tmp_path / "v", {}, managed=False)
    materialise([scratch])
    (tmp_path / "v/own").write_text("x")
    materialise([scratch])
    assert (tmp_path / "v/own").exists()


def test_sub_path_mounts_lead_to_the_file(tmp_path):
    container = {"volumeMounts": [{"name": "v", "mountPath": "/etc/one", "subPath": "one"}]}
    assert mounts_of(container, {"v": Volume(tmp_path, {}, managed=False)}) == {"/etc/one": tmp_path / "one"}


def test_an_equal_file_is_not_written_again(tmp_path):
    path = tmp_path / "f"
    assert replace_file(path, b"1")
    inode = path.stat().st_ino
    assert not replace_file(path, b"1")
    assert path.stat().st_ino == inode
    assert replace_file(path, b"2")
