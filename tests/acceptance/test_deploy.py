"""The files of deploy/ for Docker, Compose, Kubernetes and systemd, read by the tools that check them.

Nothing is started. A real image is not built: that needs Docker. The file takes four seconds.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from compose_spec import PyCompose

from tilth.base.settings import SettingGroup
from tilth.base.sources import gather
from tilth.begin import NODE_SETTINGS
from tilth.client.cli.main import app
from tilth.client.cli.serve import STOP_SECONDS_MAX
from tilth.client.script import statements
from tilth.client.settings import SERVE_SETTINGS
from tilth.statements.registry import parse

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
COMPOSE = DEPLOY / "compose" / "compose.yaml"
UNIT = DEPLOY / "systemd" / "tilth.service"
MANIFEST = DEPLOY / "kubernetes" / "tilth.yaml"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
#: The worst rating by systemd that is allowed; a service without a single restriction has 9.6, the worst is 10.
EXPOSURE_MAX = 2.0
SECONDS_MAX = 60
#: Version of Kubernetes whose schemas the manifest fits.
KUBERNETES = "1.34"
#: Variables that Spark gives to the container of an executor.
FROM_SPARK = (
    "DRIVER_URL EXECUTOR_ID EXECUTOR_CORES EXECUTOR_MEMORY APPLICATION_ID CONF_DIR EXECUTOR_POD_IP EXECUTOR_POD_NAME "
    "RESOURCE_PROFILE_ID"
).split()


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


def hadolint(dockerfile: Path) -> subprocess.CompletedProcess[str]:
    return run(str(Path(sys.executable).with_name("hadolint")), "--no-color", str(dockerfile))


def instructions(kind: str) -> list[str]:
    """Return the arguments of each instruction of the kind in the last stage."""
    text = DOCKERFILE.read_text().rpartition("\nFROM ")[2].replace("\\\n", " ")
    return [" ".join(line.split()[1:]) for line in text.splitlines() if line.split()[:1] == [kind]]


def services() -> dict[str, Any]:  # Any: what a compose file can hold
    """Return the services by name. Raises ValueError for what is no compose file, or names a volume that it lacks."""
    compose = PyCompose.from_yaml(COMPOSE.read_text())
    compose.validate()
    found: dict[str, Any] = json.loads(compose.to_json())["services"]
    return found


def test_hadolint_finds_nothing_in_the_dockerfile(tmp_path: Path) -> None:
    done = hadolint(DOCKERFILE)
    assert done.returncode == 0, done.stdout + done.stderr
    worse = tmp_path / "Dockerfile"
    worse.write_text(DOCKERFILE.read_text().replace('ENTRYPOINT ["tini", "--", "tilth"]', "ENTRYPOINT tini -- tilth"))
    assert "DL3025" in hadolint(worse).stdout


def test_an_image_runs_the_server_as_a_user_of_its_own_and_hears_signals() -> None:
    assert instructions("USER") == ["7411:7411"]
    assert instructions("VOLUME") == ["/var/lib/tilth"]
    assert instructions("ENTRYPOINT") == ['["tini", "--", "tilth"]']
    assert instructions("CMD") == ['["serve"]']
    [environment] = instructions("ENV")
    assert {"TILTH_DATA=/var/lib/tilth", "TILTH_LISTEN=0.0.0.0:7411"} <= {*environment.split()}
    [health] = instructions("HEALTHCHECK")
    [python, option, program] = json.loads(health.partition(" CMD ")[2])
    assert (python, option) == ("python", "-c")
    compile(program, "healthcheck", "exec")
    assert "http://127.0.0.1:7411/v1/health" in program


def test_all_that_an_image_copies_is_there_and_is_sent_to_the_builder() -> None:
    copied = {
        name
        for line in DOCKERFILE.read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for name in line.split()[1:-1]
    }
    sent = (DOCKERFILE.with_name("Dockerfile.dockerignore")).read_text().splitlines()
    assert {line[1:] for line in sent if line.startswith("!")} == copied
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_the_lock_of_an_image_is_a_part_of_the_lock_of_the_tests() -> None:
    of_image, of_tests = (
        {line.rstrip(" \\") for line in (ROOT / name).read_text().splitlines() if "==" in line}
        for name in ("requirements-server.lock", "requirements.lock")
    )
    assert {name for name in of_image if name.startswith(("pyspark==", "pyarrow==", "typer=="))}
    assert of_image <= of_tests
    assert not any(line.startswith(("pytest", "ruff", "mypy")) for line in of_image)


def test_the_compose_file_is_one_and_its_services_know_each_other() -> None:
    found = services()
    assert {*found} == {"broker", "tilth", "orders", "example"}
    assert found["tilth"]["image"] == found["example"]["image"] == f"tilth:{VERSION}"
    build = found["tilth"]["build"]
    assert (COMPOSE.parent / build["context"]).resolve() == ROOT
    assert ROOT / build["dockerfile"] == DOCKERFILE
    for name, service in found.items():
        assert {*service.get("depends_on", ())} <= {*found}, name
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in ("broker", "tilth") or (COMPOSE.parent / source).exists(), volume
        # Neither a broker nor a server without passwords is open to a network.
        assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", ())), name
    broken = COMPOSE.read_text().replace("stop_grace_period: 40s", "stop_grace_time: 40s")
    with pytest.raises(ValueError, match="stop_grace_time"):
        PyCompose.from_yaml(broken)


def test_the_example_of_compose_reads_the_broker_of_compose() -> None:
    script = (COMPOSE.parent / "example.sql").read_text()
    kinds = [type(parse(each.text)).__name__ for each in statements(script)]
    assert kinds == ["CreateDatabase", "CreateTable", "CreateTable", "CreateView", "Query"]
    advertised = services()["broker"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    [address] = re.findall(r"kafka_broker_list = '(.*?)'", script)
    assert f"INSIDE://{address}" in advertised.split(",")
    orders = COMPOSE.with_name("orders.sh").read_text()
    assert f"--bootstrap-server {address} --topic orders" in orders
    assert "kafka_topic_list = 'orders'" in script
    assert run("bash", "-n", str(COMPOSE.with_name("orders.sh"))).returncode == 0


def test_whoever_stops_a_server_gives_it_the_time_that_it_needs() -> None:
    seconds = int(services()["tilth"]["stop_grace_period"].removesuffix("s"))
    assert seconds > STOP_SECONDS_MAX + 10
    [of_unit] = re.findall(r"^TimeoutStopSec=(\d+)s$", UNIT.read_text(), re.MULTILINE)
    assert int(of_unit) > STOP_SECONDS_MAX + 10


def test_systemd_reads_the_unit_and_rates_it_as_closed(tmp_path: Path) -> None:
    # The program of the unit is not on this machine.
    text = UNIT.read_text().replace("ExecStart=/opt/tilth/bin/tilth ", f"ExecStart={shlex.quote(sys.executable)} ")
    unit = tmp_path / UNIT.name
    unit.write_text(text)
    done = run("systemd-analyze", "verify", str(unit))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    limit = f"--threshold={EXPOSURE_MAX * 10:.0f}"
    done = run("systemd-analyze", "security", "--offline=true", "--no-pager", limit, str(unit))
    assert done.returncode == 0, done.stdout + done.stderr
    unit.write_text(text.replace("ProtectHome=yes", "ProtectHouse=yes").replace("NoNewPrivileges=yes", ""))
    assert "ProtectHouse" in run("systemd-analyze", "verify", str(unit)).stderr


# --- Kubernetes ------------------------------------------------------------------------------------------------------


def objects() -> list[dict[str, Any]]:  # Any: what a manifest can hold
    """Return the objects of the manifest, and the pod of an executor, which is in one of them."""
    found: list[dict[str, Any]] = [*yaml.safe_load_all(MANIFEST.read_text())]
    return [*found, yaml.safe_load(named(found, "ConfigMap", "tilth-executor")["data"]["executor.yaml"])]


def named(found: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    [one] = [each for each in found if (each["kind"], each["metadata"].get("name")) == (kind, name)]
    return one


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Return the text as a pod sees it. Raises KeyError."""
    return re.sub(r"\$\((\w+)\)", lambda name: variables[name[1]], text)


def pods(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the specification of each pod that the manifest describes."""
    for each in found:
        if each["kind"] in ("StatefulSet", "Deployment"):
            yield each["spec"]["template"]["spec"]
        elif each["kind"] == "Pod":
            yield each["spec"]


def test_the_manifest_fits_the_schemas_of_kubernetes_and_is_tidy_yaml() -> None:
    found = objects()
    # The pod of an executor has no image's command but Spark's, and no name.
    assert sorted({each["kind"] for each in found}) == sorted(
        "ConfigMap Deployment Namespace NetworkPolicy Pod Role RoleBinding Service ServiceAccount StatefulSet".split()
    )
    for each in found:
        kubernetes_validate.validate(each, KUBERNETES, strict=True)
    server = named(found, "StatefulSet", "tilth")
    server["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="livenesProbe"):
        kubernetes_validate.validate(server, KUBERNETES, strict=True)
    lint = (str(Path(sys.executable).with_name("yamllint")), "--strict", "--config-file", str(DEPLOY / "yamllint.yaml"))
    done = run(*lint, str(DEPLOY))
    assert (done.returncode, done.stdout) == (0, "")


def test_the_parts_of_the_manifest_know_each_other() -> None:
    found = objects()
    maps = {each["metadata"]["name"]: each["data"] for each in found if each["kind"] == "ConfigMap"}
    accounts = {each["metadata"]["name"] for each in found if each["kind"] == "ServiceAccount"}
    for pod in pods(found):
        assert pod["serviceAccountName"] in accounts
        [container] = pod["containers"]
        assert container["image"] == f"tilth:{VERSION}"
        volumes = {each["name"]: each for each in pod["volumes"]}
        assert {each["name"] for each in container["volumeMounts"]} == {*volumes}
        assert all(each["configMap"]["name"] in maps for each in volumes.values() if "configMap" in each)
        assert [each["secret"]["secretName"] for each in volumes.values() if "secret" in each] == ["tilth"]
        ports = {each["name"] for each in container.get("ports", ())}
        probes = [
            container[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness") if f"{kind}Probe" in container
        ]
        assert {probe[by]["port"] for probe in probes for by in ("httpGet", "tcpSocket") if by in probe} <= ports
        assert pod.get("terminationGracePeriodSeconds", 40) > STOP_SECONDS_MAX + 10
    [executor, *_] = maps["tilth-executor"]
    assert executor == "executor.sh"
    # Each file of the Secret to which something refers is in the command that makes it, and no other.
    text = MANIFEST.read_text()
    referred = {*re.findall(r"/etc/tilth/secrets/([\w-]+)", text)}
    assert referred == {*re.findall(r"--from-(?:file|literal)=([\w-]+)", text)}


def test_settings_and_options_of_the_manifest_are_those_of_the_server_and_the_worker(tmp_path: Path) -> None:
    found = objects()
    config = tmp_path / "tilth.toml"
    config.write_text(named(found, "ConfigMap", "tilth")["data"]["tilth.toml"])
    group = SettingGroup((*SERVE_SETTINGS.all, *NODE_SETTINGS.all))
    for kind, name in (("StatefulSet", "tilth"), ("Deployment", "tilth-query"), ("Deployment", "tilth-write")):
        [container] = named(found, kind, name)["spec"]["template"]["spec"]["containers"]
        variables = {each["name"]: each.get("value", "a-pod") for each in container["env"]}
        assert variables.pop("TILTH_CONFIG") == "/etc/tilth/config/tilth.toml"
        # A value may name a variable before it, an argument any; a name that is none would stay as it is.
        ours = {key: expanded(value, variables) for key, value in variables.items() if key.startswith("TILTH_")}
        texts = gather(group, flags={}, environment=ours, file=config).texts
        assert texts["catalog.url"].startswith("postgresql://")
        assert len(texts) > len(ours)
        [command, *options] = (expanded(text, variables) for text in container["args"])
        [about] = [made for each in app.registered_commands if (made := each.callback) and made.__name__ == command]
        known = {f"--{word.replace('_', '-')}" for word in about.__annotations__}
        assert {option.partition("=")[0] for option in options} <= known


def test_an_executor_is_started_with_all_that_spark_gives_it(tmp_path: Path) -> None:
    script = named(objects(), "ConfigMap", "tilth-executor")["data"]["executor.sh"]
    program = tmp_path / "executor.sh"
    program.write_text(script)
    said = tmp_path / "said"
    tini = tmp_path / "tini"
    tini.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {shlex.quote(str(said))}\n')
    tini.chmod(0o755)
    given = {
        "PATH": f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin",
        "SPARK_JAVA_OPT_0": "-Dspark.a=of two words",
        "SPARK_JAVA_OPT_1": "-Dspark.b=two\nlines",
        **{f"SPARK_{name}": f"{name} of Spark".lower() for name in FROM_SPARK},
    }
    done = subprocess.run(
        ["bash", str(program), "executor"], env=given, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    text = said.read_text()
    assert text.startswith("--\njava\n")
    assert "\n-Dspark.a=of two words\n" in text
    assert "\n-Dspark.b=two\nlines\n" in text
    assert [name for name in FROM_SPARK if f"{name} of spark".lower() not in text] == []
    assert "/pyspark/jars/*\n" in text
