"""Files and directories of manifests, with every problem said at once."""

import base64
import os

import pytest

from fairway.api.manifest import InvalidManifest
from fairway.local.manifests import fingerprint, load

SERVER = "apiVersion: fairway.dev/v1alpha1\nkind: MCPServer\nmetadata: {name: %s}\nspec: {image: x}\n"


def problems(*paths):
    with pytest.raises(InvalidManifest) as invalid:
        load([str(path) for path in paths])
    return [str(problem) for problem in invalid.value.problems]


def test_a_directory_gives_its_manifests_in_order_of_name_and_nothing_below_it(tmp_path):
    (tmp_path / "b.yaml").write_text(SERVER % "b")
    (tmp_path / "a.yml").write_text(SERVER % "a")
    (tmp_path / "c.json").write_text('{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}')
    (tmp_path / "notes.txt").write_text("not: [a manifest")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/d.yaml").write_text(SERVER % "d")
    assert [name for _, _, name in load([str(tmp_path)]).objects] == ["a", "b", "c"]


def test_objects_without_namespace_are_in_the_default_one(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(SERVER % "a" + "---\n" + SERVER.replace("{name: %s}", "{name: %s, namespace: tools}") % "a")
    assert list(load([str(path)]).objects) == [("MCPServer", "default", "a"), ("MCPServer", "tools", "a")]


def test_problems_of_all_files_are_said_at_once(tmp_path):
    (tmp_path / "a.yaml").write_text("kind: MCPServer: x\n")
    (tmp_path / "b.yaml").write_text((SERVER % "b").replace("image", "imag"))
    (tmp_path / "c.yaml").write_bytes(b"\xff\xfe")
    found = problems(tmp_path, tmp_path / "gone.yaml")
    files = [problem.split(":")[0].rsplit("/", 1)[-1] for problem in found]
    assert list(dict.fromkeys(files)) == ["a.yaml", "b.yaml", "c.yaml", "gone.yaml"]
    assert found[-1].endswith("gone.yaml:1:1  no such file or directory")
    assert "not UTF-8" in found[-2]


def test_an_object_that_is_there_twice_names_the_first(tmp_path):
    (tmp_path / "a.yaml").write_text(SERVER % "x")
    (tmp_path / "b.yaml").write_text("\n" + SERVER % "x")
    (found,) = problems(tmp_path)
    assert found == f"{tmp_path}/b.yaml:2:1  MCPServer x is there twice; the first is at {tmp_path}/a.yaml:1"


def test_a_directory_without_manifests_and_a_file_without_objects_are_mistakes(tmp_path):
    assert "the directory has no manifest (*.yaml, *.yml, *.json)" in problems(tmp_path)[0]
    (tmp_path / "empty.yaml").write_text("# nothing\n---\n")
    assert "nothing to run" in problems(tmp_path)[0]


def test_kinds_that_mean_nothing_here_are_skipped_with_a_word(tmp_path):
    path = tmp_path / "a.yaml"
    ingress = "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: i}\n"
    namespace = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: n}\n"
    path.write_text(SERVER % "a" + ingress + namespace)
    loaded = load([str(path)])
    assert loaded.skipped == (f"{path}:6  Ingress i means nothing in local mode",)
    assert len(loaded.objects) == 1


def test_string_data_becomes_data_as_in_an_api_server(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: eA==}\nstringData: {token: hush}\n")
    secret = load([str(path)]).objects["Secret", "default", "s"]
    assert secret["data"] == {"a": "eA==", "token": base64.b64encode(b"hush").decode()}
    assert "stringData" not in secret


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("kind: ConfigMap\nmetadata: {name: c}\ndata: {port: 8080}", "every value of a ConfigMap must be a string"),
        ("kind: ConfigMap\nmetadata: {name: c}\ndata: [1]", "every value of a ConfigMap must be a string"),
        ("kind: Secret\nmetadata: {name: s}\nstringData: [a]", "4:1  stringData: every value of a Secret must be"),
        (
            "kind: Secret\nmetadata: {name: s}\nstringData: {a: true}",
            "4:1  stringData: every value of a Secret must be",
        ),
        ("kind: ConfigMap\nmetadata: {name: c}\nbinaryData: {a: 1}", "4:1  binaryData: every value of a ConfigMap"),
        ("kind: Secret\nmetadata: {name: s}\ndata: {k: '%%'}", "Secret s: key k is not valid base64"),
        ("kind: ConfigMap\nmetadata: {name: ../c}", "'../c' is no name"),
        ("kind: ConfigMap\nmetadata: {name: c, namespace: ../up}", "'../up' is no namespace"),
        ("kind: ConfigMap\nmetadata: {name: c, namespace: 7}", "7 is no namespace"),
        ("kind: ConfigMap\nmetadata: {name: c, labels: {a: true}}", "metadata.labels: every value must be a string"),
    ],
)
def test_what_kubernetes_would_refuse_is_refused_here(tmp_path, document, words):
    path = tmp_path / "a.yaml"
    path.write_text("apiVersion: v1\n" + document)
    (found,) = problems(path)
    assert words in found


def test_a_manifest_can_come_from_standard_input():
    assert list(load(["-"], stdin=lambda: (SERVER % "a").encode()).objects) == [("MCPServer", "default", "a")]


def test_standard_input_that_is_no_text_is_a_mistake():
    with pytest.raises(InvalidManifest, match="stdin:1:1  not UTF-8 text: byte 0"):
        load(["-"], stdin=lambda: b"\xff")


def test_an_endless_file_is_not_read_to_its_end():
    assert "larger than 16 MiB" in problems("/dev/zero")[0]


def test_a_link_to_nothing_and_directories_that_are_not_read_are_told(tmp_path):
    (tmp_path / "sub.yaml").mkdir()
    assert problems(tmp_path)[0].endswith("(*.yaml, *.yml, *.json); directories in it are not read")
    (tmp_path / "a.yaml").symlink_to(tmp_path / "gone")
    assert problems(tmp_path) == [f"{tmp_path}/a.yaml:1:1  no such file or directory"]


def test_what_only_a_server_writes_is_left_out(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(
        SERVER.replace("{name: %s}", "{name: a, uid: u, generation: 9, finalizers: [f], ownerReferences: [{}]}")
    )
    metadata = load([str(path)]).objects["MCPServer", "default", "a"]["metadata"]
    assert metadata == {"name": "a", "namespace": "default"}


def test_a_fingerprint_differs_when_a_file_came_went_or_was_written(tmp_path):
    path = tmp_path / "a.yaml"
    seen = [fingerprint([str(tmp_path)])]
    path.write_text("1")
    seen.append(fingerprint([str(tmp_path)]))
    path.write_text("2")
    os.utime(path, ns=(1, 1))
    seen.append(fingerprint([str(tmp_path)]))
    path.rename(tmp_path / "b.yaml")
    seen.append(fingerprint([str(tmp_path)]))
    (tmp_path / "b.yaml").unlink()
    assert fingerprint([str(tmp_path)]) == seen[0]
    assert len(set(seen)) == 4
    assert fingerprint([str(tmp_path / "gone")]) == fingerprint([str(tmp_path / "gone")])
