import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.api import manifest
from fairway.api.mcpserver import MCPServer

SERVER = """\
apiVersion: fairway.dev/v1alpha1
kind: MCPServer
metadata:
  name: weather
spec:
  image: example.com/weather:1
"""


def problems(text: str) -> list[str]:
    with pytest.raises(manifest.InvalidManifest) as caught:
        manifest.parse(text, file="bad.yaml")
    return [str(p) for p in caught.value.problems]


def test_a_good_manifest_comes_back_as_written_and_as_model():
    (document,) = manifest.parse(SERVER, file="x.yaml")
    assert isinstance(document.model, MCPServer)
    assert document.object["spec"] == {"image": "example.com/weather:1"}
    assert document.model.spec.replicas == 1


def test_objects_of_other_kinds_pass_unjudged():
    (document,) = manifest.parse(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {day: 2026-01-01}", file="x"
    )
    assert document.model is None
    assert document.object["data"] == {"day": "2026-01-01"}


def test_empty_documents_are_skipped():
    assert len(manifest.parse(f"---\n---\n{SERVER}---\n# nothing\n", file="x")) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            "  toolsConfigRef: {name: x}",
            "bad.yaml:7:3  spec.toolsConfigRef: unknown field; did you mean spec.toolConfigRef?",
        ),
        ("  port: 99999", "bad.yaml:7:3  spec.port: input should be less than or equal to 65535, not 99999"),
        (
            "  transport: stdi",
            "bad.yaml:7:3  spec.transport: 'stdi' is not one of 'stdio', 'sse', 'streamable-http' or 'http'",
        ),
        (
            "  env: [{name: A, valu: b}]",
            "bad.yaml:7:19  spec.env[0].valu: unknown field; did you mean spec.env[0].value?",
        ),
        (
            "  proxy: {mode: beside}",
            "bad.yaml:7:11  spec.proxy.mode: 'beside' is not one of 'standalone', 'sidecar' or 'none'",
        ),
        (
            "  inlineTools: {python: x}",
            "bad.yaml:5:1  spec: set exactly one source: image, package, inlineTools, runtime, remote or serviceRef",
        ),
        ("  image: twice", "bad.yaml:7:3  image: given twice"),
        (
            "  replicas: two",
            "bad.yaml:7:3  spec.replicas: input should be a valid integer, not 'two'",
        ),
        ('  replicas: "2"', "bad.yaml:7:3  spec.replicas: input should be a valid integer, not '2'"),
        ("  suspend: 'yes'", "bad.yaml:7:3  spec.suspend: input should be a valid boolean, not 'yes'"),
        ("  replicas: [", "bad.yaml:8:1  not valid YAML: expected the node content, but found '<stream end>'"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_the_fix(change, said):
    assert problems(SERVER + change + "\n") == [said]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("MCPServer", "MCPSever", "bad.yaml:2:1  kind: MCPSever is not a kind of fairway.dev; did you mean MCPServer?"),
        ("fairway.dev/v1alpha1", "v1", "bad.yaml:1:1  apiVersion: MCPServer is in fairway.dev/v1alpha1, not v1"),
        ("v1alpha1", "v2", "bad.yaml:1:1  apiVersion: fairway.dev/v2 is not served; use fairway.dev/v1alpha1"),
        ("  name: weather", "  nam: weather", "bad.yaml:3:1  metadata.name: required"),
        ("weather\n", "yes\n", "bad.yaml:4:3  metadata.name: must be a string; put quotes around true"),
        ("kind: MCPServer\n", "", "bad.yaml:1:1  kind: required"),
    ],
)
def test_a_wrong_head_is_named(old, new, said):
    assert problems(SERVER.replace(old, new)) == [said]


def test_a_name_that_no_service_could_carry_is_refused():
    (said,) = problems(SERVER.replace("weather\n", "w" * 53 + "\n", 1))
    assert "at most 52 characters" in said


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file():
    both = SERVER + "  prot: 1\n  replicas: -1\n---\n" + SERVER + "  imag: x\n"
    assert [p.split(":")[1] for p in problems(both)] == ["7", "8", "16"]


@pytest.mark.parametrize("text", ["x", "- a", "a: &x [*x]", "\x01", "? [a]\n: b", "a: " + "[" * 5000])
def test_what_is_no_manifest_is_refused_without_a_traceback(text):
    assert len(problems(text)) == 1


def test_what_kubectl_wraps_in_a_list_is_read_one_by_one():
    listed = "".join(f"- {SERVER.replace('weather', name)}".replace("\n", "\n  ") + "\n" for name in ("a", "b"))
    found = manifest.parse(f"apiVersion: v1\nkind: List\nmetadata: {{}}\nitems:\n{listed}", file="x")
    assert [(d.object["metadata"]["name"], d.line) for d in found] == [("a", 5), ("b", 12)]


def test_a_bad_name_is_pointed_at():
    assert problems(SERVER.replace("weather\n", "Weather\n", 1))[0].startswith("bad.yaml:4:3  metadata.name must be")


def test_what_a_message_quotes_is_short_and_moves_no_cursor():
    (long,) = problems(SERVER + f"  transport: {'x' * 5000}\n")
    assert len(long) < 200
    (coloured,) = problems(SERVER.replace("MCPServer", '"\\e[2J\\nX"'))
    assert coloured.startswith(r"bad.yaml:2:1  kind: \x1b[2J\nX is not a kind")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("  env: [{name: TOKEN, value: 12345}]", "7:23  spec.env[0].value: must be a string; put quotes around it"),
        ("  env: [{name: TOKEN, value: [x]}]", "7:23  spec.env[0].value: must be a string"),
        ("  env: {TOKEN: x}", "7:3  spec.env: must be a list"),
        ("  proxy: none", "7:3  spec.proxy: must be a map"),
    ],
)
def test_a_wrong_type_is_told_without_the_value(change, said):
    assert problems(SERVER + change + "\n") == [f"bad.yaml:{said}"]


@given(st.text(max_size=300))
def test_no_text_makes_the_reader_fail_in_any_other_way(text):
    try:
        manifest.parse(text, file="x")
    except manifest.InvalidManifest as invalid:
        assert invalid.problems
