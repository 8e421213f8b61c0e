"""The canonical form of a signed command, by the specification's own test vectors and beyond."""

import json
from base64 import b64decode, b64encode, urlsafe_b64encode
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.core.commands import Parts
from bridge.core.signing import (
    ATTRIBUTE,
    PAYLOAD_TYPE,
    Envelope,
    Signature,
    Unverified,
    covered,
    pae,
    seal,
    statement,
    unseal,
    whole_seconds,
)

# cloudevents/spec, cloudevents/extensions/verifiability.md, "Test Vectors": ECDSA over P-256,
# the numbers of the cases are the specification's.
PUBLIC_NUMBERS = ec.EllipticCurvePublicNumbers(
    46950820868899156662930047687818585632848591499744589407958293238635476079160,
    5640078356564379163099075877009565129882514886557779369047442380624545832820,
    ec.SECP256R1(),
)
BASE = {
    "specversion": "1.0",
    "id": "1",
    "source": "example/uri",
    "type": "example.type",
    "datacontenttype": "application/json",
}
HELLO = b'{"hello":"world"}'
CASE_3 = (
    "eyJwYXlsb2FkVHlwZSI6Imh0dHBzOi8vY2xvdWRldmVudHMuaW8vdmVyaWZpYWJpbGl0eS9kc3NlL3YwLjEiLCJwYXlsb2FkIjoiZXlKamIz"
    "SmxJam9pZDB0RFlUaHpjVE5rZVdjdk1EQmFhVVJSZVM5aFdFRlpNWFJsY0ZGdWNrdE1ZVFo0VURCWk0wUXZVVDBpZlE9PSIsInNpZ25hdHVy"
    "ZXMiOlt7ImtleWlkIjoidGVzdGtleSIsInNpZyI6IlVNcWlOWXA3U1FacTZNSGRtczRkbjJtc0hHaW5MSHZaYVVWM2doY2ovY241QmkzZDVq"
    "ejBzZmhtOXBaODlDY09hK1dXdGpZNmNadmo3Yy90T1dzVFZnPT0ifV19"
)
CASE_5 = (
    "eyJwYXlsb2FkVHlwZSI6Imh0dHBzOi8vY2xvdWRldmVudHMuaW8vdmVyaWZpYWJpbGl0eS9kc3NlL3YwLjEiLCJwYXlsb2FkIjoiZXlKamIz"
    "SmxJam9pY1VOVFpXbGFhMU1yYUVnNVYybERiR1p4Tm5Cc1puRlpUbFo1TW10MmVGZFNabTlDY2t4RmVtOUVhejBpZlE9PSIsInNpZ25hdHVy"
    "ZXMiOlt7ImtleWlkIjoidGVzdGtleSIsInNpZyI6IkYyaXAweG1nSlgzdWdIWkM2dE1ycjdBMkVxYWkwOHJhR3JUd2R5aC9PR0RJSXJGN0J5"
    "TTJ5SVRMS3FOckYzZHpaR1IybzBDczlmRUJGZEx4Uk9VeUVRPT0ifV19"
)
CASE_6 = (
    "eyJwYXlsb2FkVHlwZSI6Imh0dHBzOi8vY2xvdWRldmVudHMuaW8vdmVyaWZpYWJpbGl0eS9kc3NlL3YwLjEiLCJwYXlsb2FkIjoiZXlKamIz"
    "SmxJam9pVEZSblVVdElSMmhsWnpaVU5EaDRjRWRIY2pWNlRtdGthSEF5TW10bGJscERUM0ZwWTBaMFNUUlRRVDBpTENKbGVIUWlPaUpyVlRG"
    "UU9HSkVZVVZ1ZVU1b1oyeFhlbVJVU2s1SWFEYzNhMmhPVjFOYVpXSkNWWGgxWmxaTk1uQlZQU0lzSW5OcFoyNWxaR1Y0ZEdGMGRISnpJanBi"
    "SW1WNGRHRWlYWDA9Iiwic2lnbmF0dXJlcyI6W3sia2V5aWQiOiJ0ZXN0a2V5Iiwic2lnIjoibHBPcHNqUnZ2NFBDb05zQUlSRFl1MXphWlNB"
    "VkV2ajVSQzFGSk1yTDEyekJLa2IxTjhFSGlQc3FJMStId0V5V092SHU3eHE1aDBkN3BWWTRBdElOM3c9PSJ9XX0="
)
CASE_7 = (
    "eyJwYXlsb2FkVHlwZSI6Imh0dHBzOi8vY2xvdWRldmVudHMuaW8vdmVyaWZpYWJpbGl0eS9kc3NlL3YwLjEiLCJwYXlsb2FkIjoiZXlKamIz"
    "SmxJam9pVEZSblVVdElSMmhsWnpaVU5EaDRjRWRIY2pWNlRtdGthSEF5TW10bGJscERUM0ZwWTBaMFNUUlRRVDBpTENKbGVIUWlPaUpJUWpG"
    "d1pUUXpNVVp2VVZwU2MwcGllVXhPVFhFd1VXRkJkbkZRZEcxb1pHazRaRWhIVTJoaVNrRlZQU0lzSW5OcFoyNWxaR1Y0ZEdGMGRISnpJanBi"
    "SW1WNGRHRWlMQ0psZUhSaUlsMTkiLCJzaWduYXR1cmVzIjpbeyJrZXlpZCI6InRlc3RrZXkiLCJzaWciOiIyZzFVb0FRcHoxb1BqWlRQUlpl"
    "K3l2THpaUU5FQ1pha2piWlZYaXpEd2RNbmVJSCsrLzUzdVhOMmJDU2tWSkltZndPaVl5S0JtNG12c01ISlhJVWh6Zz09In1dfQ=="
)


@pytest.mark.parametrize("material", [CASE_3, CASE_5, CASE_6, CASE_7])
def test_vectors_of_the_specification_sign_the_same_bytes(material: str) -> None:
    """What we take for the signed bytes is what other implementations sign."""
    envelope = unseal({ATTRIBUTE: material})
    assert isinstance(envelope, Envelope)
    (signature,) = envelope.signatures
    numbers = (
        int.from_bytes(part, "big") for part in (signature.signature[:32], signature.signature[32:])
    )

    PUBLIC_NUMBERS.public_key().verify(
        encode_dss_signature(*numbers), pae(envelope.payload), ec.ECDSA(SHA256())
    )

    assert signature.key_id == "testkey"


def test_vector_of_binary_data_has_our_digest() -> None:
    """The one vector whose data the specification gives byte for byte; JSON data it only shows."""
    kind = {"type": "example.type.binary", "datacontenttype": "application/octet-stream"}
    parts = Parts(attributes=BASE | kind, data=b64decode("8J+koQ=="))
    envelope = unseal({ATTRIBUTE: CASE_5})

    assert isinstance(envelope, Envelope)
    assert statement(parts, []) == envelope.payload
    assert covered(parts, envelope.payload) == parts


@pytest.mark.parametrize(("material", "names"), [(CASE_6, ["exta"]), (CASE_7, ["exta", "extb"])])
def test_vectors_of_extensions_have_our_digest(material: str, names: list[str]) -> None:
    """The digest of extension attributes is the same, and so is the order of the payload."""
    parts = Parts(attributes={**BASE, "exta": "value1", "extb": "value2"}, data=b"{}")
    envelope = unseal({ATTRIBUTE: material})

    assert isinstance(envelope, Envelope)
    assert statement(parts, names).partition(b",")[2] == envelope.payload.partition(b",")[2]


def test_pae_is_the_protocols_example() -> None:
    """Lengths and spaces are where DSSE wants them."""
    assert pae(b"hello world") == b"DSSEv1 46 " + PAYLOAD_TYPE.encode() + b" 11 hello world"


FULL = Parts(
    attributes=BASE
    | {
        "time": "2026-11-18T06:00:00.750Z",
        "expirytime": "2026-11-18T07:10:00+01:00",
        "idempotencykey": "chg-4711",
        "dataschema": "urn:x",
        "subject": "s",
    },
    data=HELLO,
)
NAMES = ["expirytime", "idempotencykey"]


def test_covered_gives_what_was_signed_as_it_was_signed() -> None:
    """Times are cut to the second, other attributes are gone, the data is the same bytes."""
    sent = Parts(attributes={**FULL.attributes, "traceparent": "x", "data": "y"}, data=HELLO)

    found = covered(sent, statement(FULL, NAMES))

    times = {"time": "2026-11-18T06:00:00Z", "expirytime": "2026-11-18T06:10:00Z"}
    assert found == Parts(attributes={**FULL.attributes, **times}, data=HELLO)


@pytest.mark.parametrize("name", [*FULL.attributes])
@pytest.mark.parametrize("value", ["changed", "2026-11-18T06:00:01Z", None, 7, True, ["x"], 1.5])
def test_covered_any_changed_attribute_is_refused(name: str, value: object) -> None:
    """Every attribute that decides anything is under the signature."""
    changed = Parts(attributes={**FULL.attributes, name: value}, data=HELLO)

    assert isinstance(covered(changed, statement(FULL, NAMES)), Unverified)


@pytest.mark.parametrize("data", [b"", HELLO + b" ", b'{"hello": "world"}', HELLO[:-1]])
def test_covered_data_written_again_is_refused(data: bytes) -> None:
    """The bytes are signed, not what they mean."""
    changed = Parts(attributes=FULL.attributes, data=data)

    assert covered(changed, statement(FULL, NAMES)) == Unverified(
        f"{ATTRIBUTE}: the command was changed after it was signed"
    )


@pytest.mark.parametrize("name", NAMES)
def test_covered_a_deciding_extension_must_be_signed(name: str) -> None:
    """An expiry or a key that anybody could have added is refused."""
    others = [other for other in NAMES if other != name]

    actual = covered(FULL, statement(FULL, others))

    assert actual == Unverified(f"{ATTRIBUTE}: {name} is not signed")


def digest(fields: dict[str, Any], **changes: Any) -> bytes:
    return json.dumps({**fields, **changes}).encode()


SIGNED = json.loads(statement(FULL, NAMES))
BAD_PAYLOADS: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"hello", "malformed JSON"),
    "duplicate": (b'{"core":"","core":""}', "duplicate key"),
    "no core": (digest({}), "not base64"),
    "short core": (digest(SIGNED, core="AAAA"), "a digest has the wrong length"),
    "wrong core": (digest(SIGNED, core=b64encode(bytes(32)).decode()), "was changed"),
    "wrong ext": (digest(SIGNED, ext=b64encode(bytes(32)).decode()), "extension attribute was"),
    "other order": (digest(SIGNED, signedextattrs=NAMES[::-1]), "extension attribute was"),
    "repeated (8a)": (digest(SIGNED, signedextattrs=["exta", "exta"]), "repeats a name"),
    "core name (8b)": (digest(SIGNED, signedextattrs=["exta", "id"]), "is no extension"),
    "itself (8c)": (digest(SIGNED, signedextattrs=[ATTRIBUTE]), "is no extension"),
    "no ext (8d)": (digest(SIGNED, ext=None), "go together"),
    "no names (8e)": (digest(SIGNED, signedextattrs=None), "go together"),
    "names no list": (digest(SIGNED, signedextattrs=5), "not a list of names"),
    "names no text": (digest(SIGNED, signedextattrs=[5]), "not a list of names"),
}


@pytest.mark.parametrize(("payload", "why"), BAD_PAYLOADS.values(), ids=BAD_PAYLOADS)
def test_covered_bad_payload_is_refused(payload: bytes, why: str) -> None:
    """Even under a good signature, the payload must keep the specification's rules."""
    actual = covered(FULL, payload)

    assert isinstance(actual, Unverified)
    assert why in actual.detail


def test_covered_half_a_surrogate_is_refused() -> None:
    """What cannot be written in UTF-8 cannot have been signed."""
    parts = Parts(attributes={**FULL.attributes, "source": "/\ud800"}, data=HELLO)

    assert "not valid text" in getattr(covered(parts, statement(FULL, NAMES)), "detail", "")


def test_covered_strange_type_of_a_signed_extension_is_refused() -> None:
    """Case 8f: what has no canonical string cannot be signed."""
    payload = digest(SIGNED, signedextattrs=[*NAMES, "exta"])
    parts = Parts(attributes={**FULL.attributes, "exta": {"a": 1}}, data=HELLO)

    assert "no attribute can have" in getattr(covered(parts, payload), "detail", "")


def material(**changes: Any) -> str:
    fields = {
        "payload": "e30=",
        "payloadType": PAYLOAD_TYPE,
        "signatures": [{"keyid": "k", "sig": "AAAA"}],
    }
    return b64encode(json.dumps({**fields, **changes}).encode()).decode()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "the command is not signed"),
        ("", "the command is not signed"),
        (5, "not base64"),
        ("%%%", "not base64"),
        ("A", "not base64"),
        ("é", "not base64"),
        ("A" * 16_388, "not base64 of at most 16384 characters"),
        (b64encode(b"\xff").decode(), "utf-8"),
        (b64encode(b"[]").decode(), "expected an object"),
        (material(payloadType="application/json"), "payloadType is not"),
        (material(payload=None), "not base64"),
        (material(signatures=None), "signatures is not a list of 1 to 8"),
        (material(signatures=[]), "signatures is not a list of 1 to 8"),
        (material(signatures=[{"keyid": "k", "sig": ""}] * 9), "signatures is not a list of 1 to"),
        (material(signatures=["x"]), "a signature has no keyid"),
        (material(signatures=[{"sig": "AAAA"}]), "a signature has no keyid"),
        (material(signatures=[{"keyid": "k", "sig": 5}]), "not base64"),
    ],
)
def test_unseal_bad_material_says_why(value: object, why: str) -> None:
    """What is no envelope is refused with the reason."""
    actual = unseal({ATTRIBUTE: value})

    assert isinstance(actual, Unverified)
    assert why in actual.detail


def test_unseal_reads_what_seal_wrote_in_either_alphabet() -> None:
    """DSSE allows standard and URL-safe base64."""
    envelope = Envelope(b"\xfb\xff\xfe", (Signature("k", b"\xff\xfb"), Signature("l", b"")))
    sealed = seal(envelope)

    assert unseal({ATTRIBUTE: sealed}) == envelope
    assert unseal({ATTRIBUTE: urlsafe_b64encode(b64decode(sealed)).decode()}) == envelope
    assert unseal({ATTRIBUTE: material(payload="-_-_", more=1)}) == Envelope(
        b"\xfb\xff\xbf", (Signature("k", b"\x00\x00\x00"),)
    )


@pytest.mark.parametrize("names", [["id"], [ATTRIBUTE], ["a", "a"]])
def test_statement_refuses_what_must_not_be_signed(names: list[str]) -> None:
    """A signer keeps the same rules as a verifier."""
    with pytest.raises(ValueError):
        statement(FULL, names)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-18T06:00:00.999999Z", "2026-11-18T06:00:00Z"),
        ("2026-11-18T23:30:00-01:00", "2026-11-19T00:30:00Z"),
        ("0999-01-01T00:00:00Z", "0999-01-01T00:00:00Z"),
    ],
)
def test_whole_seconds_are_utc(text: str, expected: str) -> None:
    """The same moment gives the same text, whatever zone and precision it came in."""
    assert whole_seconds(text) == expected


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.sampled_from([*FULL.attributes, "exta", ATTRIBUTE]), anything),
    st.binary(max_size=40),
    st.fixed_dictionaries(
        {}, optional={"core": anything, "ext": anything, "signedextattrs": anything}
    )
    | anything,
)
def test_any_attributes_and_payload_never_raise(
    attributes: dict[str, Any], data: bytes, payload: Any
) -> None:
    """Whatever stands in the message, the answer is a value."""
    parts = Parts(attributes=attributes, data=data)

    assert isinstance(unseal(attributes), Envelope | Unverified)
    assert isinstance(covered(parts, json.dumps(payload).encode()), Parts | Unverified)
    assert isinstance(covered(parts, data), Parts | Unverified)
