"""Files that change while the proxy runs."""

import os

import pytest

from fairway.proxy.middleware.watched import MAX_SIZE, Unreadable, WatchedFile


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_file_is_looked_at_once_in_each_interval(tmp_path):
    path, clock = tmp_path / "key", Clock()
    path.write_bytes(b"one")
    file = WatchedFile(str(path), clock=clock, interval=1.0)
    assert file.content() == b"one"
    path.write_bytes(b"number two")
    clock.now = 0.9
    assert file.content() == b"one"
    clock.now = 1.0
    assert file.content() == b"number two"


def test_a_file_that_did_not_change_is_not_read_again(tmp_path):
    path, clock = tmp_path / "key", Clock()
    path.write_bytes(b"one")
    file = WatchedFile(str(path), clock=clock, interval=0)
    assert file.content() is file.content()


def test_the_swap_of_a_mounted_secret_is_noticed(tmp_path):
    """As the kubelet does it: files are links through ..data, which is replaced in one step."""
    clock = Clock()
    for name, content in (("..1", b"old"), ("..2", b"new")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_bytes(content)
        os.utime(tmp_path / name / "token", ns=(1, 1))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "token").symlink_to("..data/token")
    file = WatchedFile(str(tmp_path / "token"), clock=clock, interval=0)
    assert file.content() == b"old"
    (tmp_path / "..data_tmp").symlink_to("..2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert file.content() == b"new"


def test_a_file_that_vanishes_keeps_its_last_content_and_says_so(tmp_path):
    path, clock = tmp_path / "key", Clock()
    path.write_bytes(b"secret")
    file = WatchedFile(str(path), clock=clock, interval=0)
    assert file.content() == b"secret"
    path.unlink()
    assert file.content() == b"secret"
    assert file.error == f"{path}: No such file or directory"
    path.write_bytes(b"x" * (MAX_SIZE + 1))
    assert file.content() == b"secret"
    assert "larger" in file.error
    path.write_bytes(b"again")
    assert file.content() == b"again"
    assert file.error == ""


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.mkdir(), lambda p: p.symlink_to(p)])
def test_a_file_that_was_never_read_is_an_error_that_names_it(tmp_path, make):
    path = tmp_path / "key"
    make(path)
    with pytest.raises(Unreadable, match=str(path)):
        WatchedFile(str(path), clock=Clock()).content()
