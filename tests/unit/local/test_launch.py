"""Containers as processes: every difference to a cluster that is promised, and no other."""

import sys
from pathlib import Path

import pytest

from fairway.local.launch import TERMINATION_LOG, Launch, Refused, inherited_environment, launch_of, on_loopback
from fairway.local.pod import from_template

RUN = Path("/state/run/p")


def launched(container, *, spec=None, objects=None, inherited=None, as_command=False, runtime=""):
    full = {
        "name": "server",
        "image": "fairway",
        "ports": [{"name": "mcp", "containerPort": 8080}],
        **container,
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "default", "uid": "u"},
        "spec": {"template": {"spec": {"containers": [full], **(spec or {})}}},
    }
    pod = from_template(deployment, suffix="x", host_ports={8080: 23456})
    return launch_of(
        pod,
        pod["spec"]["containers"][0],
        image="fairway",
        run_directory=RUN,
        lookup=lambda kind, _, name: (objects or {}).get((kind, name)),
        inherited=inherited or {},
        as_command=as_command,
        containers=lambda: runtime,
    )


def test_our_own_image_is_this_program():
    launch = launched({"args": ["tools", "--file", "x.py"]})
    assert isinstance(launch, Launch)
    assert launch.argv[:3] == (sys.executable, "-m", "fairway")
    assert launch.argv[3:] == ("tools", "--file", "x.py", "--host", "127.0.0.1")


def test_another_image_waits_and_says_what_to_do():
    refused = launched({"image": "ghcr.io/x/y:1"})
    assert isinstance(refused, Refused)
    assert refused.reason == "NeedsContainerRuntime"
    assert "ghcr.io/x/y:1" in refused.message
    assert "spec.inlineTools" in refused.message


CONFIG = {
    "image": "python:3.13",
    "command": ["python", "/etc/mcp/notes.py", "--port=8080"],
    "args": ["/data/$(WHERE)"],
    "env": [{"name": "WHERE", "value": "here"}, {"name": "PORT", "value": "8080"}, {"name": "KEY", "value": "s3cret"}],
    "volumeMounts": [
        {"name": "config", "mountPath": "/etc/mcp", "readOnly": True},
        {"name": "data", "mountPath": "/data"},
    ],
}
VOLUMES = {"volumes": [{"name": "config", "configMap": {"name": "c"}}, {"name": "data", "emptyDir": {}}]}
OBJECTS = {("ConfigMap", "c"): {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"notes.py": "pass"}}}


def test_a_command_runs_here_without_its_image_where_its_owner_says_so():
    launch = launched(CONFIG, spec=VOLUMES, objects=OBJECTS, as_command=True, runtime="docker")
    assert isinstance(launch, Launch)
    program, *words = launch.argv
    assert program in ("python", sys.executable)
    assert words == [f"{RUN}/volumes/config/notes.py", "--port=8080", f"{RUN}/volumes/data/here"]
    assert launch.env["PORT"] == "23456"
    refused = launched({"image": "x"}, as_command=True)
    assert isinstance(refused, Refused)
    assert "there is none" in refused.message


def test_an_image_runs_in_a_container_on_loopback_and_its_secrets_are_in_no_argument():
    launch = launched({**CONFIG, "stdin": True}, spec=VOLUMES, objects=OBJECTS, runtime="podman")
    assert isinstance(launch, Launch)
    line = " ".join(launch.argv)
    assert line.startswith("podman run --rm --init --name fairway-")
    assert "--interactive" in launch.argv
    assert "--publish 127.0.0.1:23456:8080" in line
    assert f"--volume {RUN}/volumes/config:/etc/mcp:ro" in line
    assert f"--volume {RUN}/volumes/data:/data " in line
    assert line.endswith("--entrypoint python python:3.13 /etc/mcp/notes.py --port=8080 /data/$(WHERE)")
    assert "--env KEY" in line
    assert "s3cret" not in line
    assert launch.env["KEY"] == "s3cret"
    assert launch.box is not None


@pytest.mark.parametrize("spec", [{"initContainers": [{"name": "i"}]}])
def test_what_local_mode_cannot_do_is_refused_and_not_skipped(spec):
    assert isinstance(launched({}, spec=spec), Refused)
    assert isinstance(launched({"command": ["sh"]}), Refused)


@pytest.mark.parametrize(
    ("arguments", "moved"),
    [
        (["tools", "--port", "8080"], ["tools", "--port", "23456", "--host", "127.0.0.1"]),
        (["tools", "--port=8080", "--host=0.0.0.0"], ["tools", "--port", "23456", "--host", "127.0.0.1"]),
        (["tools", "--host", "0.0.0.0", "--path", "/x"], ["tools", "--path", "/x", "--host", "127.0.0.1"]),
        (["tools", "--port", "9999"], ["tools", "--port", "9999", "--host", "127.0.0.1"]),
        (["tools", "--port"], ["tools", "--port", "", "--host", "127.0.0.1"]),
        (["version", "--port", "8080"], ["version", "--port", "8080"]),
        ([], []),
    ],
)
def test_our_commands_are_moved_to_loopback_and_to_their_port_here(arguments, moved):
    assert on_loopback(arguments, {8080: 23456}) == moved


@pytest.mark.parametrize(
    ("name", "value", "here"),
    [
        ("MCP_PORT", "8080", "23456"),
        ("FASTMCP_PORT", "8080", "23456"),
        ("PORT", "8080", "23456"),
        ("PORT", "9000", "9000"),
        ("SOME_PORT", "8080", "8080"),
        ("MCP_HOST", "0.0.0.0", "127.0.0.1"),
        ("MCP_HOST", "::", "127.0.0.1"),
        ("MCP_HOST", "mcp.example.com", "mcp.example.com"),
        ("GREETING", "0.0.0.0", "0.0.0.0"),
    ],
)
def test_ports_and_hosts_in_the_environment_are_those_of_this_machine(name, value, here):
    assert launched({"env": [{"name": name, "value": value}]}).env[name] == here


def test_mount_paths_in_arguments_and_variables_are_rewritten():
    launch = launched(
        {
            "args": ["tools", "--file", "/etc/t/tools.py"],
            "env": [{"name": "HOME", "value": "/tmp"}],
            "volumeMounts": [{"name": "t", "mountPath": "/etc/t"}, {"name": "tmp", "mountPath": "/tmp"}],
        },
        spec={"volumes": [{"name": "t", "configMap": {"name": "c"}}, {"name": "tmp", "emptyDir": {}}]},
        objects={("ConfigMap", "c"): {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"tools.py": ""}}},
    )
    assert launch.argv[5] == str(RUN / "volumes/t/tools.py")
    assert launch.env["HOME"] == str(RUN / "volumes/tmp")


def test_what_is_missing_is_a_container_config_error_with_object_and_key():
    variable = {"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    refused = launched({"env": [variable]})
    assert refused.reason == "CreateContainerConfigError"
    assert refused.message == "env T asks for key k of Secret s, but there is no Secret s"


def test_little_of_our_own_environment_is_passed_on():
    ours = {"PATH": "/bin", "AWS_SECRET_ACCESS_KEY": "hush", "PYTHONPATH": "src", "LANG": "C.UTF-8"}
    inherited = inherited_environment(ours)
    assert set(inherited) == {"PATH", "PYTHONPATH", "LANG"}
    assert Path(inherited["PYTHONPATH"]).is_absolute()
    launch = launched({}, inherited=inherited)
    assert set(launch.env) == {"PATH", "PYTHONPATH", "LANG", "PYTHONUNBUFFERED", "HOME", TERMINATION_LOG}


def test_the_containers_own_variables_win_over_ours():
    launch = launched({"env": [{"name": "PATH", "value": "/mine"}]}, inherited={"PATH": "/ours"})
    assert launch.env["PATH"] == "/mine"


def test_the_state_directory_is_itself_even_below_a_path_that_is_mounted():
    scratch = {
        "volumeMounts": [{"name": "tmp", "mountPath": "/state"}],
        "args": ["package", "--cache", "/state/packages"],
    }
    launch = launched(scratch, spec={"volumes": [{"name": "tmp", "emptyDir": {}}]})
    assert launch.argv[-1] == "/state/packages"
    elsewhere = launched(
        {**scratch, "args": ["x", "/state-of-things", "/other"]}, spec={"volumes": [{"name": "tmp", "emptyDir": {}}]}
    )
    assert elsewhere.argv[-1] == "/other"
