"""Servers that are packages: the step that fetches one into a volume, and how it is started from there. Pure.

No shell is ever in between: names, versions and arguments go from list to list.
"""

import ipaddress
from urllib.parse import urlsplit

from fairway.api import names
from fairway.api.source import Package
from fairway.controllers.mcpserver import shape
from fairway.controllers.mcpserver.children import TMP, Object
from fairway.controllers.mcpserver.image import server_image
from fairway.controllers.mcpserver.inputs import Inputs
from fairway.controllers.mcpserver.permissions import egress
from fairway.controllers.settings import Settings
from fairway.packages.node import SCRIPT

VOLUME = "package"
CA_VOLUME = "package-ca"
CA_KEY = "ca.crt"


def given(inputs: Inputs) -> Package:
    package = inputs.server.spec.package
    assert package is not None
    return package


def in_pod(inputs: Inputs) -> bool:
    """Whether the server's own pods fetch it. On a laptop, what runs it fetches it too."""
    return inputs.server.spec.package is not None and shape.workload(inputs) is not None and not inputs.processes


def volumes(settings: Settings) -> list[Object]:
    """Where the package is, and the authorities of the index, as the operator was told."""
    found: list[Object] = [{"name": VOLUME, "emptyDir": {}}]
    if settings.package_ca:
        items = [{"key": CA_KEY, "path": CA_KEY}]
        found.append({"name": CA_VOLUME, "configMap": {"name": settings.package_ca, "items": items}})
    return found


def mount(*, read_only: bool) -> Object:
    return {"name": VOLUME, "mountPath": names.PACKAGE_DIR, **({"readOnly": True} if read_only else {})}


def arguments(package: Package) -> list[str]:
    """Which package, as our own command takes it."""
    kind, name = ("npm", package.npm) if package.npm else ("pypi", package.pypi)
    return [f"--{kind}", str(name), "--version", package.version]


def program(inputs: Inputs) -> list[str]:
    """The first word of spec.command, which names the program of the package."""
    command = inputs.server.spec.command or []
    return command[:1]


def started_by(inputs: Inputs, settings: Settings) -> Object:
    """How the fetched package is started."""
    if inputs.processes:
        return {"args": on_a_laptop(inputs, settings)}
    node = ["node"] if given(inputs).npm else []
    arguments_of_it = [*(inputs.server.spec.command or [])[1:], *(given(inputs).args or [])]
    args = {"args": arguments_of_it} if arguments_of_it else {}
    return {"command": [*node, f"{names.PACKAGE_DIR}/run"], **args}


def on_a_laptop(inputs: Inputs, settings: Settings) -> list[str]:
    """Arguments of our own program, which fetches what is not there yet and then becomes the server."""
    name = [f"--program={word}" for word in program(inputs)]
    rest = (inputs.server.spec.command or [])[1:]
    where = ["--cache", settings.package_cache]
    return ["package", "run", *where, *arguments(given(inputs)), *name, "--", *rest, *(given(inputs).args or [])]


def settings_on_a_laptop(inputs: Inputs, settings: Settings) -> list[Object]:
    """Where what runs the server also fetches it, it has to know from where."""
    if inputs.server.spec.package is None or not inputs.processes:
        return []
    own = {variable.name for variable in inputs.server.spec.env} | {"HOME"}
    found = _environment(given(inputs), settings)
    return [{"name": name, "value": value} for name, value in found.items() if name not in own]


def fetch(inputs: Inputs, settings: Settings) -> Object:
    """The container that runs before the server and leaves the package in the volume."""
    package = given(inputs)
    image = server_image(inputs.server.spec, settings)
    words = program(inputs)
    if package.npm:
        run: Object = {"command": ["node", "-e", SCRIPT, "--", names.PACKAGE_DIR, package.npm, package.version, *words]}
    else:
        name = [f"--program={word}" for word in words]
        run = {"args": ["package", "fetch", "--into", names.PACKAGE_DIR, *arguments(package), *name]}
    mounts = [mount(read_only=False)]
    if settings.package_ca:
        mounts.append({"name": CA_VOLUME, "mountPath": names.PACKAGE_CA_DIR, "readOnly": True})
    return {
        "name": names.CONTAINER_FETCH,
        "image": image.reference,
        "imagePullPolicy": image.pull_policy,
        **run,
        "env": [{"name": name, "value": value} for name, value in _environment(package, settings).items()],
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}},
        # what the index said is worth more than a number
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def _environment(package: Package, settings: Settings) -> dict[str, str]:
    found = {"HOME": TMP}
    authorities = f"{names.PACKAGE_CA_DIR}/{CA_KEY}" if settings.package_ca else ""
    if package.npm:
        found |= {"npm_config_registry": settings.npm_registry, "NODE_EXTRA_CA_CERTS": authorities}
    else:
        found |= {"UV_DEFAULT_INDEX": settings.package_index, "SSL_CERT_FILE": authorities}
    found |= {
        "HTTPS_PROXY": settings.package_proxy,
        "HTTP_PROXY": settings.package_proxy,
        "NO_PROXY": settings.package_no_proxy,
    }
    return {name: value for name, value in found.items() if value}


def problem(inputs: Inputs, settings: Settings) -> str | None:
    """What keeps the package from being fetched or started, as far as that can be known before."""
    package = inputs.server.spec.package
    if package is None or inputs.processes:
        return None
    if package.npm and not settings.node_image:
        return (
            "spec.package.npm: this operator has no image with Node; start it with --node-image, "
            "or put the server into an image of its own"
        )
    return _out_of_reach(inputs, settings)


def _out_of_reach(inputs: Inputs, settings: Settings) -> str | None:
    """Whether the permission profile forbids the way to the index: the fetch runs in the same pod."""
    rules = egress(inputs, settings).rules
    if rules is None:
        return None
    package = given(inputs)
    setting = settings.package_proxy or (settings.npm_registry if package.npm else settings.package_index)
    parts = urlsplit(setting)
    host = parts.hostname or ""
    port = parts.port or (80 if parts.scheme == "http" else 443)
    if any(_admits(rule, host, port) for rule in rules):
        return None
    what = f"{host}:{port}" if host else "the package index"
    return (
        f"spec.permissionProfile: the package is fetched from {what} by the server's own pod, and the profile does "
        "not allow that; allow it, or put the server into an image of its own"
    )


def _admits(rule: Object, host: str, port: int) -> bool:
    ports = rule.get("ports")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        # a name has to be looked up first, so that nothing less than everything will do
        blocks = [peer["ipBlock"]["cidr"] for peer in rule["to"] if "ipBlock" in peer]
        return ports is None and "0.0.0.0/0" in blocks
    if ports is not None and port not in [entry["port"] for entry in ports]:
        return False
    return any("ipBlock" in peer and _holds(peer["ipBlock"], address) for peer in rule["to"])


def _holds(block: Object, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    def inside(cidr: str) -> bool:
        network = ipaddress.ip_network(cidr)
        return network.version == address.version and address in network

    return inside(block["cidr"]) and not any(map(inside, block.get("except") or ()))
