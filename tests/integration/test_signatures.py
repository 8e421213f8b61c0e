"""Signatures with real keys from real files: what is believed, and what is not."""

import hashlib
import stat
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bridge import signatures
from bridge.cli import main
from bridge.config import Commands
from bridge.core.commands import Parts, Wire, split
from bridge.core.signing import ATTRIBUTE, Envelope, Signature, Unverified, pae, seal, statement
from bridge.errors import ConfigError
from bridge.signatures import Verifier, key_id, revoked_keys, sign
from tests.builders import VM_NAME, command_fields

FIELDS = command_fields(
    {"vm": VM_NAME},
    time="2026-11-18T06:00:00Z",
    expirytime="2026-11-18T06:10:00Z",
    idempotencykey="chg-4711",
)


def signed(command: dict[str, Any], *keys: Ed25519PrivateKey) -> bytes:
    return sign(msgspec.json.encode(command), *keys)


def public_file(folder: Path, key: Ed25519PrivateKey | ec.EllipticCurvePrivateKey) -> str:
    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    path = folder / f"{hashlib.sha256(pem).hexdigest()[:8]}.pem"
    path.write_bytes(pem)
    return str(path)


@pytest.fixture
def key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


@pytest.fixture
def verifier(tmp_path: Path, key: Ed25519PrivateKey) -> Verifier:
    return Verifier.load(Commands(trusted_keys=(public_file(tmp_path, key),)))


def parts_of(payload: bytes, **wire: Any) -> Parts:
    parts = split(Wire(payload=payload, **wire), bytes_max=65_536)
    assert isinstance(parts, Parts), parts
    return parts


def refusal(verifier: Verifier, parts: Parts) -> str:
    actual = verifier.verify(parts)
    assert isinstance(actual, Unverified), actual
    return actual.detail


def test_signed_command_is_believed_and_cut_down_to_what_was_signed(
    verifier: Verifier, key: Ed25519PrivateKey
) -> None:
    """All attributes and the data come out; what anybody may have added does not."""
    sent = msgspec.json.decode(signed(FIELDS, key))

    found = verifier.verify(parts_of(msgspec.json.encode({**sent, "traceparent": "x"})))

    assert isinstance(found, Parts)
    assert {**found.attributes, "data": msgspec.json.decode(found.data)} == FIELDS
    assert found.signed_by == key_id(key.public_key())


def test_binary_mode_is_believed_with_the_same_signature(
    verifier: Verifier, key: Ed25519PrivateKey
) -> None:
    """The content mode may change on the way; the bytes of the data may not."""
    fields = {**FIELDS, "datacontenttype": "application/json"}
    sent = msgspec.json.decode(signed(fields, key), type=dict[str, msgspec.Raw])
    data = bytes(sent.pop("data"))
    properties = tuple(
        (name, msgspec.json.decode(value))
        for name, value in sent.items()
        if name != "datacontenttype"
    )

    found = verifier.verify(parts_of(data, attributes=properties, content_type="application/json"))

    assert isinstance(found, Parts)
    assert (found.data, found.attributes["idempotencykey"]) == (data, "chg-4711")


def variants(sent: dict[str, Any]) -> dict[str, dict[str, Any]]:
    changed = {
        name: {**sent, name: value}
        for name, value in {
            "id": "c-2",
            "source": "/other",
            "type": "io.sebridge.other.v1",
            "time": "2026-11-18T06:00:01Z",
            "expirytime": "2026-11-18T06:20:00Z",
            "idempotencykey": "chg-4712",
            "subject": "added",
            "dataschema": "added",
            "datacontenttype": "application/json",
            "data": {**sent["data"], "vm": "web_4"},
        }.items()
    }
    missing = {
        f"no {name}": {other: value for other, value in sent.items() if other != name}
        for name in ("time", "expirytime", "idempotencykey")
    }
    return changed | missing


@pytest.mark.parametrize("name", variants({"data": {}}))
def test_changed_message_is_refused(verifier: Verifier, key: Ed25519PrivateKey, name: str) -> None:
    """Nothing that decides about the command can be changed, added or taken away."""
    changed = variants(msgspec.json.decode(signed(FIELDS, key)))[name]

    assert "after it was signed" in refusal(verifier, parts_of(msgspec.json.encode(changed)))


def test_data_written_again_is_refused(verifier: Verifier, key: Ed25519PrivateKey) -> None:
    """The same data in other bytes was not signed."""
    payload = signed(FIELDS, key).replace(b'"data":{', b'"data":{ ')

    assert "after it was signed" in refusal(verifier, parts_of(payload))


def test_what_stands_around_the_data_may_change(verifier: Verifier, key: Ed25519PrivateKey) -> None:
    """Order and space outside `data` are not the sender's words."""
    sent = msgspec.json.decode(signed(FIELDS, key), type=dict[str, msgspec.Raw])
    payload = (
        b"{\n "
        + b" ,\n ".join(
            b'"%s" : %s' % (name.encode(), value) for name, value in reversed(sent.items())
        )
        + b"\n}"
    )

    assert isinstance(verifier.verify(parts_of(payload)), Parts)


def test_unsigned_command_is_refused(verifier: Verifier) -> None:
    """No signature, no approval."""
    assert refusal(verifier, parts_of(msgspec.json.encode(FIELDS))) == "the command is not signed"


def test_stranger_is_refused_even_under_a_trusted_name(
    verifier: Verifier, key: Ed25519PrivateKey
) -> None:
    """The key id is a hint; only the signature counts."""
    stranger = Ed25519PrivateKey.generate()
    parts = parts_of(msgspec.json.encode(FIELDS))
    payload = statement(parts, ["expirytime", "idempotencykey"])
    forged = stranger.sign(pae(payload))
    claims = Envelope(payload, (Signature(key_id(key.public_key()), forged),))
    honest = Envelope(payload, (Signature(key_id(stranger.public_key()), forged),))

    for envelope in (claims, honest):
        attributes = {**parts.attributes, ATTRIBUTE: seal(envelope)}
        sent = Parts(attributes=attributes, data=parts.data)
        assert refusal(verifier, sent) == "no good signature by a trusted key"


@pytest.mark.parametrize("signature", [b"", b"\0" * 64, b"\0" * 63, b"\xff" * 64, b"\0" * 6000])
def test_empty_and_odd_signatures_are_refused(
    verifier: Verifier, key: Ed25519PrivateKey, signature: bytes
) -> None:
    """Bytes that are no signature are no signature."""
    parts = parts_of(msgspec.json.encode(FIELDS))
    envelope = Envelope(b"{}", (Signature(key_id(key.public_key()), signature),))
    sent = Parts(attributes={**parts.attributes, ATTRIBUTE: seal(envelope)}, data=parts.data)

    assert refusal(verifier, sent) == "no good signature by a trusted key"


def test_signature_without_the_payload_type_is_refused(
    verifier: Verifier, key: Ed25519PrivateKey
) -> None:
    """A signature made for something else cannot be lent to a command."""
    parts = parts_of(msgspec.json.encode(FIELDS))
    payload = statement(parts, ["expirytime", "idempotencykey"])
    envelope = Envelope(payload, (Signature(key_id(key.public_key()), key.sign(payload)),))
    sent = Parts(attributes={**parts.attributes, ATTRIBUTE: seal(envelope)}, data=parts.data)

    assert refusal(verifier, sent) == "no good signature by a trusted key"


def test_rotation_needs_no_gap(tmp_path: Path, key: Ed25519PrivateKey) -> None:
    """Old and new key are trusted side by side, and one good signature of two is enough."""
    new = Ed25519PrivateKey.generate()
    both = Verifier.load(
        Commands(trusted_keys=(public_file(tmp_path, key), public_file(tmp_path, new)))
    )
    only_new = Verifier.load(Commands(trusted_keys=(public_file(tmp_path, new),)))

    for payload in (signed(FIELDS, key), signed(FIELDS, new), signed(FIELDS, key, new)):
        assert isinstance(both.verify(parts_of(payload)), Parts)
    assert isinstance(only_new.verify(parts_of(signed(FIELDS, key, new))), Parts)
    assert isinstance(only_new.verify(parts_of(signed(FIELDS, key))), Unverified)


def test_revocation_counts_at_once_and_can_be_taken_back(
    tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    """The file is read for every signed command; another key's signature still counts."""
    other, revoked = Ed25519PrivateKey.generate(), tmp_path / "revoked"
    revoked.write_text("# nobody yet\n")
    verifier = Verifier.load(
        Commands(
            trusted_keys=(public_file(tmp_path, key), public_file(tmp_path, other)),
            revoked_keys_file=str(revoked),
        )
    )
    name = key_id(key.public_key())
    assert isinstance(verifier.verify(parts_of(signed(FIELDS, key))), Parts)
    revoked.write_text(f"\n{name.upper()}  # stolen\n")

    assert refusal(verifier, parts_of(signed(FIELDS, key))) == f"key {name} is revoked"
    found = verifier.verify(parts_of(signed(FIELDS, key, other)))
    assert isinstance(found, Parts)
    assert found.signed_by == key_id(other.public_key())
    revoked.write_text("")
    assert isinstance(verifier.verify(parts_of(signed(FIELDS, key))), Parts)


@pytest.mark.parametrize("content", [None, "not a key id\n", "\xff", "0" * 63, "0" * 1_048_577])
def test_revocation_file_that_cannot_be_read_stops_everything(
    tmp_path: Path, key: Ed25519PrivateKey, content: str | None
) -> None:
    """While nobody knows which keys are revoked, none is believed, and a start is refused."""
    revoked = tmp_path / "revoked"
    revoked.write_text("")
    config = Commands(trusted_keys=(public_file(tmp_path, key),), revoked_keys_file=str(revoked))
    verifier = Verifier.load(config)
    revoked.unlink()
    if content is not None:
        revoked.write_text(content, encoding="latin-1")

    assert str(revoked) in refusal(verifier, parts_of(signed(FIELDS, key)))
    with pytest.raises(ConfigError):
        Verifier.load(config)


def test_key_files_that_are_none_are_refused_at_the_start(tmp_path: Path) -> None:
    """Other algorithms, private keys and rubbish are no trusted keys."""
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")
    curve = public_file(tmp_path, ec.generate_private_key(ec.SECP256R1()))
    assert main(["keys", "new", str(tmp_path / "keys")]) == 0
    (private,) = map(str, (tmp_path / "keys").glob("*.key.pem"))

    for path in (str(rubbish), curve, private):
        with pytest.raises(ConfigError, match="does not hold an Ed25519 public key"):
            Verifier.load(Commands(trusted_keys=(path,)))
    with pytest.raises(ConfigError, match="cannot read"):
        Verifier.load(Commands(trusted_keys=(str(tmp_path / "none"),)))
    with pytest.raises(ConfigError, match="does not hold an Ed25519 private key"):
        signatures.load_private_key(curve)


def test_revoked_keys_without_a_file_are_none() -> None:
    """No file, nobody revoked."""
    assert revoked_keys("") == frozenset()


def test_keys_new_makes_a_pair_that_openssl_agrees_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The private key is its owner's alone, and the id is the hash of the public key's DER."""
    folder = tmp_path / "keys"

    assert main(["keys", "new", str(folder)]) == 0

    name = capsys.readouterr().out.split()[2]
    (private,), (public,) = folder.glob("*.key.pem"), folder.glob("*.pub.pem")
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    der = subprocess.run(
        ["openssl", "pkey", "-pubin", "-in", str(public), "-outform", "DER"],
        capture_output=True,
        check=True,
    ).stdout
    assert name == hashlib.sha256(der).hexdigest()
    assert key_id(signatures.load_private_key(str(private)).public_key()) == name
    assert private.name.startswith(name[:16])


def test_keys_list_shows_state_and_place(
    tmp_path: Path, key: Ed25519PrivateKey, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which keys are trusted, which are revoked, and where they are."""
    other, config = Ed25519PrivateKey.generate(), tmp_path / "config.toml"
    files = [public_file(tmp_path, key), public_file(tmp_path, other)]
    (tmp_path / "revoked").write_text(key_id(other.public_key()))
    config.write_text(
        f'[commands]\ntrusted_keys = {files}\nrevoked_keys_file = "{tmp_path / "revoked"}"\n'
    )

    assert main(["keys", "list", "--config", str(config)]) == 0

    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert lines == [
        [key_id(key.public_key()), "trusted", files[0]],
        [key_id(other.public_key()), "revoked", files[1]],
    ]


def test_keys_list_without_keys_says_that_commands_are_unsigned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unsigned is a state that one can see."""
    config = tmp_path / "config.toml"
    config.write_text("")

    assert main(["keys", "list", "--config", str(config)]) == 0
    assert "unsigned" in capsys.readouterr().out


def test_keys_new_never_overwrites_and_tells_where_it_cannot_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that is a file is a failure with its name."""
    blocked = tmp_path / "file"
    blocked.write_text("")

    assert main(["keys", "new", str(blocked)]) == 1
    assert str(blocked) in capsys.readouterr().err


def test_check_config_reads_the_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing key file shows before the agent is started."""
    config = tmp_path / "config.toml"
    config.write_text(f'[commands]\ntrusted_keys = ["{tmp_path}/none.pem"]\n')

    assert main(["check-config", "--config", str(config)]) == 2
    assert "none.pem" in capsys.readouterr().err
