"""The Azure guest agent as a handler sees it: folders, commands, and how it reads the answers.

Unpacking, environment and parsing follow WALinuxAgent, with its sharp edges: modes are lost,
unknown status words are errors, a heartbeat counts only while its file is young.
"""

import base64
import json
import os
import stat
import subprocess
import time
import zipfile
from pathlib import Path
from typing import Any

NAME = "Sebridge.ScheduledEventsBridge"
STATUSES = ("transitioning", "warning", "error", "success")
FRESH_S = 600
LIMITS_S = {"install": 900, "enable": 300, "disable": 900, "update": 900, "uninstall": 300}


class Answer:
    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code = done.returncode
        self.output = done.stdout + done.stderr


class GuestAgent:
    """One VM's guest agent; `root` is the VM's file system as the extension sees it."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder
        self.root = root
        folder.mkdir(mode=0o700)

    def unpack(self, package: Path) -> "Handler":
        version = package.stem.partition("__")[2]
        home = self.folder / f"{NAME}-{version}"
        with zipfile.ZipFile(package) as zipped:
            zipped.extractall(home)
        for path in home.rglob("*"):
            if path.is_file():
                path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return Handler(self, home, version)

    def make_certificate(self) -> str:
        """A certificate and its key, as the agent leaves them; the thumbprint names both."""
        key, certificate = self.folder / "key", self.folder / "certificate"
        openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
            "-subj", "/CN=test", "-keyout", str(key), "-out", str(certificate),
        )  # fmt: skip
        printed = openssl("x509", "-in", str(certificate), "-noout", "-fingerprint", "-sha1")
        thumbprint = printed.decode().partition("=")[2].strip().replace(":", "")
        key.rename(self.folder / f"{thumbprint}.prv")
        certificate.rename(self.folder / f"{thumbprint}.crt")
        return thumbprint


class Handler:
    """One unpacked version of the extension."""

    def __init__(self, agent: GuestAgent, home: Path, version: str) -> None:
        self.agent, self.home, self.version = agent, home, version
        self.log = agent.folder.parent / "log" / NAME
        for path in (home / "config", home / "status", self.log):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        folders = {
            "logFolder": str(self.log),
            "configFolder": str(home / "config"),
            "statusFolder": str(home / "status"),
            "heartbeatFile": str(home / "heartbeat.log"),
            "eventsFolder": str(self.log / "events"),
        }
        content = [{"name": NAME, "version": "1.0", "handlerEnvironment": folders}]
        (home / "HandlerEnvironment.json").write_text(json.dumps(content))

    def run(self, operation: str, sequence: int = 0, **environment: str) -> Answer:
        manifest = json.loads((self.home / "HandlerManifest.json").read_text())
        command = manifest[0]["handlerManifest"][f"{operation}Command"].lstrip("/")
        variables = {
            **os.environ,
            "SEBRIDGE_ROOT": str(self.agent.root),
            "ConfigSequenceNumber": str(sequence),
            "AZURE_GUEST_AGENT_EXTENSION_PATH": str(self.home),
            "AZURE_GUEST_AGENT_EXTENSION_VERSION": self.version,
            **environment,
        }
        done = subprocess.run(
            f"{self.home}/{command}",
            shell=True,
            cwd=self.home,
            env=variables,
            capture_output=True,
            text=True,
            start_new_session=True,
            timeout=LIMITS_S[operation],
            check=False,
        )
        return Answer(done)

    def set(
        self,
        sequence: int,
        public: object = None,
        protected: str | bytes | None = None,
        thumbprint: str | None = None,
    ) -> None:
        """Write N.settings; `protected` is encrypted for the certificate, if there is one."""
        if isinstance(protected, str):
            protected = base64.b64encode(encrypt(self.agent, protected, thumbprint or ""))
        settings = {
            "publicSettings": public,
            "protectedSettings": protected.decode() if protected else None,
            "protectedSettingsCertThumbprint": thumbprint,
        }
        content = {"runtimeSettings": [{"handlerSettings": settings}]}
        self.write_settings(sequence, json.dumps(content))

    def write_settings(self, sequence: int, text: str) -> None:
        (self.home / f"config/{sequence}.settings").write_text(text)

    def status(self, sequence: int = 0) -> dict[str, Any]:
        """What Azure would be shown; anything that the agent would not accept fails here."""
        raw = (self.home / f"status/{sequence}.status").read_bytes()
        assert not raw.startswith(b"\xef\xbb\xbf"), "a byte order mark is code 1012"
        (content,) = json.loads(raw)
        status: dict[str, Any] = content["status"]
        assert status["status"] in STATUSES, "any other word is shown as an error"
        assert set(status["formattedMessage"]) == {"lang", "message"}
        assert len(raw) < 128 * 1024
        return status

    def heartbeat(self) -> str:
        """The handler's state: Ready, NotReady, Unresponsive, or an error if there is no file."""
        path = self.home / "heartbeat.log"
        assert path.is_file(), "a missing heartbeat is a handler error"
        if time.time() - path.stat().st_mtime > FRESH_S:
            return "Unresponsive"
        (content,) = json.loads(path.read_text())
        assert set(content["heartbeat"]["formattedMessage"]) == {"lang", "message"}
        return str(content["heartbeat"]["status"])


def encrypt(agent: GuestAgent, plaintext: str, thumbprint: str) -> bytes:
    certificate = agent.folder / f"{thumbprint}.crt"
    arguments = ("cms", "-encrypt", "-aes256", "-outform", "DER", str(certificate))
    return openssl(*arguments, stdin=plaintext.encode())


def openssl(*arguments: str, stdin: bytes = b"") -> bytes:
    done = subprocess.run(["openssl", *arguments], input=stdin, capture_output=True, check=True)
    return done.stdout
