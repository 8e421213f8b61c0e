"""Keys for signed commands: make a pair, list those that are trusted, sign what is sent."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bridge import configfile, views
from bridge.errors import BridgeError


def add_arguments(parser: argparse.ArgumentParser, default_config: str) -> None:
    actions: Any = parser.add_subparsers(required=True, metavar="ACTION")
    text = "make a new pair of keys in a folder"
    new = actions.add_parser("new", help=text, description=text)
    new.add_argument("folder", metavar="DIR", type=Path, help="made if need be")
    new.set_defaults(function=lambda args: _new(args.folder))
    text = "the keys that this configuration trusts"
    listing = actions.add_parser("list", help=text, description=text)
    listing.add_argument(
        "--config", metavar="FILE", default=default_config, help="TOML; default: %(default)s"
    )
    listing.set_defaults(function=lambda args: _list(args.config))


def signer(key_file: str) -> Callable[[bytes], bytes]:
    """What a command passes through before it is sent; without a key it stays as it is."""
    if not key_file:
        return bytes
    from bridge import signatures  # noqa: PLC0415

    key = signatures.load_private_key(key_file)
    return lambda command: signatures.sign(command, key)


def _new(folder: Path) -> int:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
        Ed25519PrivateKey,
    )
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    from bridge.signatures import key_id  # noqa: PLC0415

    key = Ed25519PrivateKey.generate()
    public = key.public_key()
    name = key_id(public)
    private_file = folder / f"{name[:16]}.key.pem"
    public_file = folder / f"{name[:16]}.pub.pem"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        _create(private_file, pem, 0o600)
        pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        _create(public_file, pem, 0o644)
    except OSError as error:
        raise BridgeError(f"cannot write to {folder}: {error.strerror}") from error
    print(f"key id       {name}")
    print(f"private key  {private_file}  (stays with the sender: approve --key-file)")
    print(f"public key   {public_file}  (goes to every VM: commands.trusted_keys)")
    return 0


def _create(path: Path, content: bytes, mode: int) -> None:
    """Never over an old one, and never readable for others in between."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _list(config_file: str) -> int:
    from bridge.signatures import key_id, load_public_key, revoked_keys  # noqa: PLC0415

    commands = configfile.load(config_file).commands
    if not commands.trusted_keys:
        print("no key is trusted: commands are taken unsigned")
        return 0
    revoked = revoked_keys(commands.revoked_keys_file)
    rows = [(key_id(load_public_key(path)), path) for path in commands.trusted_keys]
    print(
        views.table(
            ("KEY ID", "STATE", "FILE"),
            ((name, "revoked" if name in revoked else "trusted", path) for name, path in rows),
        )
    )
    return 0
