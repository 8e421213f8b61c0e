"""Every way an operation can fail ends in an `error` status and a `NotReady` heartbeat."""

import base64
import json
import shutil
from pathlib import Path

import pytest

from bridge.service.layout import Layout
from tests.support.guest_agent import Answer, Handler

# Installs of real wheels: seconds on a quiet machine, a minute on a busy one.
pytestmark = pytest.mark.timeout(240)

SECRET = "hush-9c1e-secret"
Settings = dict[str, object]


def assert_failed(handler: Handler, answer: Answer, code: int, why: str, sequence: int = 0) -> None:
    status = handler.status(sequence)
    assert (code, code, "error") == (answer.code, status["code"], status["status"])
    assert why in status["formattedMessage"]["message"]
    assert why in answer.output
    assert "NotReady" == handler.heartbeat()


def test_damaged_wheel_is_refused_by_its_hash(handler: Handler, vm: Layout) -> None:
    """What is installed is what was built, byte for byte."""
    (wheel,) = (handler.home / "wheels").glob("paho_mqtt-*.whl")
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    shutil.rmtree(vm.programs, ignore_errors=True)

    answer = handler.run("install")

    assert_failed(handler, answer, 1, "paho-mqtt")
    assert not (vm.current / "bin/sebridge").exists()


def test_full_disk_is_reported_and_a_second_install_repairs(
    handler: Handler, vm: Layout, tmp_path: Path
) -> None:
    """An install that was cut short is made anew, never taken for a whole one."""
    whole = (handler.home / "HandlerManifest.json").read_text()
    limited = whole.replace("bin/sebridge-setup extension install", "bin/limited")
    (handler.home / "HandlerManifest.json").write_text(limited)
    # No file over half a megabyte can be written, as on a disk that is almost full.
    script = (
        f"#!/bin/sh\nulimit -f 1000\nexec {handler.home}/bin/sebridge-setup extension install\n"
    )
    (handler.home / "bin/limited").write_text(script)
    (handler.home / "bin/limited").chmod(0o755)
    shutil.rmtree(vm.programs, ignore_errors=True)

    answer = handler.run("install")

    assert_failed(handler, answer, 1, "cannot make the virtual environment")
    (handler.home / "HandlerManifest.json").write_text(whole)
    assert 0 == handler.run("install").code
    assert (vm.current / "bin/sebridge").exists()


def test_package_that_is_not_whole_is_named(handler: Handler) -> None:
    """A zip that was cut or unpacked by half says what is missing."""
    (handler.home / "wheels/requirements.txt").unlink()

    answer = handler.run("install")

    assert_failed(handler, answer, 1, "has no requirements.txt: the package is not whole")


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '"x"', '{"runtimeSettings": []}', '{"runtimeSettings": [{"handlerSettings": 3}]}'],
)
def test_settings_that_are_no_settings_are_refused(handler: Handler, text: str) -> None:
    """A damaged settings file is the user's to see, not a traceback."""
    handler.write_settings(0, text)

    answer = handler.run("enable")

    assert 53 == answer.code
    assert "error" == handler.status()["status"]
    assert "Traceback" not in answer.output


@pytest.mark.parametrize(
    ("public", "why"),
    [
        ([1], "publicSettings must be a JSON object"),
        ({"mqtt": {"port": "many"}}, "mqtt.port: Expected `int`"),
        ({"mqtt": {"password": SECRET}}, "mqtt.password: unknown key"),
        ({"mqtt": None}, "mqtt: null is no value"),
        ({"store": 3}, "store"),
    ],
)
def test_public_settings_that_the_agent_refuses_are_named(
    handler: Handler, public: object, why: str
) -> None:
    """The status names the key and its place; a value is not repeated."""
    handler.set(0, public)

    answer = handler.run("enable")

    assert_failed(handler, answer, 53, why)
    assert SECRET not in answer.output


def test_missing_certificate_is_named(handler: Handler) -> None:
    """Protected settings for a certificate that the VM does not have cannot be read."""
    thumbprint = handler.agent.make_certificate()
    handler.set(0, {}, json.dumps({"mqtt": {"password": SECRET}}), thumbprint)
    (handler.agent.folder / f"{thumbprint}.prv").unlink()

    answer = handler.run("enable")

    assert_failed(handler, answer, 1, f"{thumbprint}.prv is missing")


def test_wrong_key_is_said_by_openssl(handler: Handler) -> None:
    """Settings encrypted for another certificate are an error, not an empty configuration."""
    other, mine = (handler.agent.make_certificate() for _ in range(2))
    handler.set(0, {}, json.dumps({"mqtt": {"password": SECRET}}), other)
    settings = handler.home / "config/0.settings"
    settings.write_text(settings.read_text().replace(other, mine))

    answer = handler.run("enable")

    assert_failed(handler, answer, 1, "openssl cannot decrypt the protected settings")


@pytest.mark.parametrize("thumbprint", [None, "", "../../etc/passwd"])
def test_thumbprint_that_is_none_is_refused(handler: Handler, thumbprint: str | None) -> None:
    """A thumbprint becomes a file name, so it must look like one."""
    handler.set(0, {}, base64.b64encode(b"x"), thumbprint)

    answer = handler.run("enable")

    assert_failed(handler, answer, 53, "without the thumbprint of their certificate")


@pytest.mark.parametrize(
    ("plaintext", "why"),
    [
        (f'{{"mqtt": {{"password": "{SECRET}"', "not JSON after decryption"),
        (f'["{SECRET}"]', "protectedSettings must be a JSON object"),
        (json.dumps({"mqtt": {"password": [[SECRET]]}}), "must be a text that is not empty"),
        (json.dumps({"mqtt": {"../x": SECRET}}), "a key may hold letters"),
        (json.dumps({"mqtt": {"passwort": SECRET}}), "mqtt.passwort_file: unknown key"),
    ],
)
def test_protected_settings_that_cannot_be_used_are_not_repeated(
    handler: Handler, vm: Layout, plaintext: str, why: str
) -> None:
    """The reason is told, the secret is not: not in the status, nor in the output, nor on disk."""
    handler.set(0, {}, plaintext, handler.agent.make_certificate())

    answer = handler.run("enable")

    assert_failed(handler, answer, 53, why)
    files = [p for p in (*vm.root.rglob("etc/**/*"), *handler.home.rglob("*")) if p.is_file()]
    assert not [p for p in files if SECRET.encode() in p.read_bytes()]
    assert SECRET not in answer.output


def test_python_without_wheels_is_told_by_the_shim_itself(handler: Handler) -> None:
    """Without a usable Python only sh is left to write the status, and it does."""
    (handler.home / "platforms").write_text("pdp11-cp311\n")

    answer = handler.run("install", 7)

    assert_failed(handler, answer, 52, "no Python that this package has wheels for", 7)


def test_path_that_is_no_folder_is_named(handler: Handler, vm: Layout) -> None:
    """Trouble with the file system names the path."""
    vm.settings.parent.mkdir()
    vm.settings.write_text("")

    answer = handler.run("enable")

    assert_failed(handler, answer, 1, str(vm.settings))


def test_agent_that_cannot_start_is_told_with_its_last_words(
    handler: Handler, away: Settings, vm: Layout
) -> None:
    """A port that is taken stops the agent; the reason reaches Azure."""
    handler.set(0, {**away, "http": {"listen": "192.0.2.1:1"}})

    answer = handler.run("enable")

    assert_failed(handler, answer, 1, "http.listen 192.0.2.1:1")
    assert not (handler.home / "mrseq").exists()


def test_environment_that_is_missing_ends_with_a_message(handler: Handler) -> None:
    """Without HandlerEnvironment.json there is no status folder to write to; stderr remains."""
    (handler.home / "HandlerEnvironment.json").unlink()

    answer = handler.run("enable")

    assert 1 == answer.code
    assert "HandlerEnvironment.json: No such file" in answer.output
