"""The agent on this VM as one thing: installed, configured, started, stopped, removed.

Every operation may be repeated, and repeats nothing that is done already. The ledger in the state
folder is touched by none but `uninstall(purge=True)`: it is the memory of what was approved.
"""

import contextlib
import fcntl
import hashlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from bridge.errors import ConfigError, ServiceError
from bridge.service import files, package, runtime
from bridge.service.layout import Layout

_CHECK_S_MAX = 30.0
# Folders that the unit's ProtectHome= hides from the agent.
_HIDDEN = ("/home", "/root", "/run/user")
_FIRST_CONFIGURATION = "# See docs/configuration.md; an empty file means every default.\n"


class Installation:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.runtime = runtime.choose(layout)

    def install(self, program: Path) -> None:
        """Make `program`, a virtual environment, the one in use; start nothing."""
        layout = self.layout
        if not (program / "bin/sebridge").exists():
            raise ServiceError(f"{program} holds no bin/sebridge: use a virtual environment")
        if layout.root == Path("/") and str(program).startswith(_HIDDEN):
            raise ServiceError(f"the service may not look into {program}: install below /opt")
        layout.secrets.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not layout.configuration.exists():
            files.write(layout.configuration, _FIRST_CONFIGURATION, 0o644)
        if not self.is_current(program):
            files.link(layout.current, program)
        if not layout.command.is_symlink():
            files.link(layout.command, layout.current / "bin/sebridge")
        self.runtime.install()

    def configure(self, text: str, secrets: Mapping[str, str] | None = None) -> None:
        """Put a configuration in force for the next start; a bad one changes nothing."""
        if secrets is None:
            self._check(text, self.layout.secrets)
        else:
            staged = self.layout.settings / ".candidate"
            try:
                _fill(staged, secrets)
                self._check(text, staged)
            finally:
                files.remove(staged)
            _fill(self.layout.secrets, secrets)
        files.write(self.layout.configuration, text, 0o644)

    def enable(self) -> bool:
        """Start the agent, now and at every boot; False if it runs already, as configured."""
        if not self.layout.current.exists():
            raise ServiceError("sebridge is not installed here: run `sebridge service install`")
        wanted = self._fingerprint()
        if self.runtime.is_running and files.read(self.layout.applied) == wanted:
            return False
        self._check(self.layout.configuration.read_text(encoding="utf-8"), self.layout.secrets)
        self.runtime.start()
        files.write(self.layout.applied, wanted, 0o600)
        return True

    def disable(self) -> None:
        self.runtime.stop()

    def update(self, program: Path) -> None:
        """Change to `program`; a running agent is restarted, and the old one if that fails."""
        before = self.layout.current.readlink() if self.layout.current.is_symlink() else None
        was_running = self.runtime.is_running
        self.install(program)
        if not was_running:
            return
        try:
            self.enable()
        except (ServiceError, ConfigError):
            if before is not None and (before / "bin/sebridge").exists():
                self.install(before)
                self.enable()
            raise
        if before is not None and before != program:
            self._remove_program(before)

    def uninstall(self, program: Path, *, purge: bool = False) -> None:
        """Remove `program`; what all versions share goes only with the one in use."""
        layout = self.layout
        if self.is_current(program) or not layout.current.exists():
            self.runtime.stop()
            self.runtime.remove()
            for path in (layout.command, layout.current, layout.applied):
                files.remove(path)
        self._remove_program(program)
        if purge:
            for path in (layout.settings, layout.state, layout.private_state):
                files.remove(path)

    def is_current(self, program: Path) -> bool:
        return self.layout.current.is_symlink() and self.layout.current.readlink() == program

    def forget_secrets(self) -> None:
        _fill(self.layout.secrets, {})

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One operation at a time; the kernel lets go when this process ends."""
        self.layout.runtime.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(self.layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _check(self, text: str, secrets: Path) -> None:
        """With the secrets read from where they lie now: some exist for a running agent only."""
        candidate = self.layout.settings / ".candidate.toml"
        seen_by_agent = str(self.runtime.secret_path("*")).removesuffix("*")
        files.write(candidate, text.replace(seen_by_agent, f"{secrets}/"), 0o600)
        try:
            problem = self._problem_of(candidate)
        finally:
            files.remove(candidate)
        if problem:
            problem = problem.replace(str(candidate), str(self.layout.configuration))
            raise ConfigError(problem.replace(f"{secrets}/", seen_by_agent))

    def _problem_of(self, configuration: Path) -> str:
        command = [str(self.layout.current / "bin/sebridge"), "check-config"]
        try:
            done = subprocess.run(
                [*command, "--config", str(configuration)],
                capture_output=True,
                text=True,
                timeout=_CHECK_S_MAX,
                check=False,
                env={"LANG": "C.UTF-8"},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ServiceError(f"{' '.join(command)}: {error}") from error
        return done.stderr.strip().removeprefix("sebridge: ") if done.returncode else ""

    def _fingerprint(self) -> str:
        """Of all that a restart would pick up."""
        current = self.layout.current
        made_of = files.read(current / package.STAMP) or ""
        digest = hashlib.sha256(f"{current.readlink()}\0{made_of}".encode())
        secrets = sorted(p for p in self.layout.secrets.iterdir() if p.is_file())
        for path in (self.layout.configuration, *secrets):
            digest.update(f"\0{path.name}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()

    def _remove_program(self, program: Path) -> None:
        """Only what lies in our own folder: a virtual environment elsewhere is the user's."""
        if program.parent == self.layout.programs:
            files.remove(program)


def _fill(folder: Path, secrets: Mapping[str, str]) -> None:
    """Exactly these files, for their owner only."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, secret in secrets.items():
        files.write(folder / name, secret, 0o600)
    for path in folder.iterdir():
        if path.name not in secrets:
            files.remove(path)
