"""The only list of options: frozen structs, one for each table of the TOML file.

Unknown keys and bad values are refused with the key's place. Each component gets its own section,
never the whole. Secrets are files or identities, never values.
"""

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from bridge.core import topics
from bridge.core.policy import Rule

# A year at most: TOML knows inf, and no timer does.
Positive = Annotated[float, Meta(gt=0, le=31_536_000)]
Count = Annotated[int, Meta(gt=0)]
Port = Annotated[int, Meta(ge=1, le=65535)]
SinkName = Literal["mqtt", "eventhubs", "stdout"]
ContentMode = Literal["structured", "binary"]


def split_address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"listen {listen!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Only this machine can reach it. A name could mean anything, but for this one."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frozen: nobody changes options at run time. Keyword-only: tests read like the file.

    Unknown fields are forbidden: a misspelt safety option must not be ignored.
    """


class Imds(Section, frozen=True):
    endpoint: str = "http://169.254.169.254"
    api_version: str = "2020-07-01"
    poll_interval_s: Positive = 1.0
    vm_name: str = ""
    first_timeout_s: Positive = 130.0
    timeout_s: Positive = 5.0
    stale_after_s: Positive = 30.0
    requests_per_s_max: Positive = 4.0

    def __post_init__(self) -> None:
        url = urlsplit(self.endpoint)
        try:
            _ = url.port
        except ValueError as error:
            raise ValueError(f"endpoint: {error}") from error
        if url.scheme != "http" or not url.hostname or url.query or url.fragment:
            raise ValueError("endpoint must be http://HOST[:PORT][/PATH]; IMDS knows no TLS")


class Store(Section, frozen=True):
    path: str = "/var/lib/sebridge/state.db"


class Events(Section, frozen=True):
    sinks: tuple[SinkName, ...] = ("mqtt",)
    scope: Literal["own", "all"] = "own"
    heartbeat_s: Positive = 30.0

    def __post_init__(self) -> None:
        if len(set(self.sinks)) != len(self.sinks):
            raise ValueError("sinks names one sink twice")


class Commands(Section, frozen=True):
    source: Literal["mqtt", "eventhubs", "none"] = "mqtt"
    max_age_s: Positive = 300
    payload_bytes_max: Count = 65_536
    per_s_max: Positive = 20.0
    trusted_keys: tuple[str, ...] = ()
    revoked_keys_file: str = ""
    signed_lifetime_s_max: Positive = 900
    require_token: bool = False

    def __post_init__(self) -> None:
        if self.revoked_keys_file and not self.trusted_keys:
            raise ValueError("revoked_keys_file has no meaning without trusted_keys")

    @property
    def trust(self) -> Literal["signed", "unsigned", "none"]:
        """What a command needs to be believed; published in every status."""
        if self.source == "none":
            return "none"
        return "signed" if self.trusted_keys else "unsigned"


class Approvals(Section, frozen=True):
    mode: Literal["enforce", "shadow"] = "enforce"
    multi_vm: Literal["leader", "any", "refuse"] = "leader"
    in_doubt: Literal["watch", "repost"] = "watch"
    first_document: Literal["allow", "refuse"] = "allow"
    per_minute_max: Count = 30
    flush_s: Annotated[float, Meta(ge=0, le=31_536_000)] = 5.0
    connect_timeout_s: Positive = 2.0
    answer_timeout_s: Positive = 10.0
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        names = [rule.name for rule in self.rules]
        if "" in names or len(set(names)) != len(names):
            raise ValueError("rules need a name each, and each its own: outcomes carry it")


class MqttTls(Section, frozen=True):
    enabled: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    def __post_init__(self) -> None:
        if bool(self.cert_file) != bool(self.key_file):
            raise ValueError("cert_file and key_file go together")


class Mqtt(Section, frozen=True):
    host: str = "localhost"
    port: Port = 1883
    protocol: Literal["5", "3.1.1", "auto"] = "auto"
    client_id: str = ""
    topic_root: str = "sebridge/v1/{resource_group}/{vm_name}"
    content_mode: ContentMode = "structured"
    username: str = ""
    password_file: str = ""
    auth: Literal["password", "x509", "entra-jwt"] = "password"
    identity_client_id: str = ""
    response_topic_prefix: str = "sebridge/"
    keepalive_s: Annotated[int, Meta(ge=5, le=1160)] = 30
    session_expiry_s: Annotated[int, Meta(ge=0, le=4_294_967_295)] = 28_800
    connect_timeout_s: Positive = 10.0
    publish_timeout_s: Positive = 15.0
    inflight_max: Annotated[int, Meta(ge=1, le=65_535)] = 20
    receive_max: Annotated[int, Meta(ge=1, le=65_535)] = 16
    reconnect_s_max: Positive = 30.0
    tls: MqttTls = MqttTls()

    def __post_init__(self) -> None:
        topics.check_template(self.topic_root)
        if self.content_mode == "binary" and self.protocol == "3.1.1":
            raise ValueError("content_mode binary needs MQTT 5: protocol must be 5 or auto")
        if self.auth == "x509" and not (self.tls.enabled and self.tls.cert_file):
            raise ValueError("auth x509 needs tls.enabled, tls.cert_file and tls.key_file")
        if self.auth == "entra-jwt" and (self.protocol == "3.1.1" or not self.tls.enabled):
            raise ValueError("auth entra-jwt needs MQTT 5 and tls.enabled")


class EventHubs(Section, frozen=True):
    connection_string_file: str = ""
    namespace: str = ""
    identity_client_id: str = ""
    events_hub: str = "scheduled-events"
    commands_hub: str = "scheduled-events-commands"
    consumer_group: str = "$Default"
    events_consumer_group: str = "$Default"
    lookback_s: Positive = 86_400
    heartbeat_s: Positive = 60.0
    content_mode: ContentMode = "structured"
    transport: Literal["amqp", "websocket"] = "amqp"
    endpoint: str = ""
    ca_file: str = ""
    connect_timeout_s: Positive = 20.0
    send_timeout_s: Positive = 15.0
    reconnect_s_max: Positive = 30.0
    checkpoint_s: Positive = 10.0

    def __post_init__(self) -> None:
        if self.connection_string_file and self.namespace:
            raise ValueError("connection_string_file and namespace exclude each other")
        if self.identity_client_id and self.connection_string_file:
            raise ValueError("identity_client_id goes with namespace, not with a connection string")
        if "/" in self.namespace or (self.namespace and "." not in self.namespace):
            raise ValueError("namespace must be a host name such as NAME.servicebus.windows.net")
        host, _, port = self.endpoint.rpartition(":")
        if self.endpoint and not (host and port.isdecimal()):
            raise ValueError("endpoint must be HOST:PORT")
        if not (self.events_hub and self.commands_hub):
            raise ValueError("events_hub and commands_hub must not be empty")


class Http(Section, frozen=True):
    listen: str = "127.0.0.1:9464"

    def __post_init__(self) -> None:
        if self.listen:
            self.address()

    def address(self) -> tuple[str, int]:
        return split_address(self.listen)


class Console(Section, frozen=True):
    listen: str = "127.0.0.1:8470"
    hosts: tuple[str, ...] = ()
    token_file: str = ""
    user_header: str = ""
    key_file: str = ""
    read_only: bool = False
    approval_valid_s: Positive = 300.0
    session_s: Positive = 43_200.0
    silent_after_s: Positive = 120.0
    forget_after_s: Positive = 86_400.0
    vms_max: Count = 10_000
    events_max: Count = 5_000
    history_rows_max: Count = 500
    clients_max: Count = 50

    def __post_init__(self) -> None:
        host, _ = self.address()
        if not is_loopback(host) and not (self.token_file or self.user_header):
            raise ValueError(
                f"listen {self.listen!r} is open to others: set token_file or user_header"
            )

    def address(self) -> tuple[str, int]:
        return split_address(self.listen)


class Log(Section, frozen=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "text"] = "json"


class Service(Section, frozen=True):
    heartbeat_file: str = ""


class Config(Section, frozen=True):
    imds: Imds = Imds()
    store: Store = Store()
    events: Events = Events()
    commands: Commands = Commands()
    approvals: Approvals = Approvals()
    mqtt: Mqtt = Mqtt()
    eventhubs: EventHubs = EventHubs()
    http: Http = Http()
    console: Console = Console()
    log: Log = Log()
    service: Service = Service()

    def __post_init__(self) -> None:
        # MQTT that brings commands takes their answers back; a hub for commands is only read.
        if not self.events.sinks and self.commands.source != "mqtt":
            raise ValueError("events.sinks is empty: nothing would be published, no answer either")
        hubs = self.eventhubs
        if self.uses_eventhubs and not (hubs.connection_string_file or hubs.namespace):
            raise ValueError("eventhubs needs connection_string_file or namespace")
        if self.uses_eventhubs and hubs.events_hub == hubs.commands_hub:
            raise ValueError("eventhubs.events_hub and eventhubs.commands_hub must differ")

    @property
    def uses_eventhubs(self) -> bool:
        return "eventhubs" in self.events.sinks or self.commands.source == "eventhubs"


def options() -> Iterator[tuple[tuple[str, ...], Struct, str]]:
    """Every option as (path, section with its defaults, field name): for docs and checks."""
    yield from _options((), Config())


def _options(
    path: tuple[str, ...], section: Struct
) -> Iterator[tuple[tuple[str, ...], Struct, str]]:
    for name in section.__struct_fields__:
        value = getattr(section, name)
        if isinstance(value, Struct):
            yield from _options((*path, name), value)
        else:
            yield (*path, name), section, name
