"""Who may look, and who may press the button.

Pages of other sites must not reach this server through its user's browser: the Host header must be
a name of ours (DNS rebinding), a POST must come from our own page (Origin, and a token that only
our page can read), and nothing may be framed or run that this server did not send. Secrets are
compared in constant time.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable
from urllib.parse import quote, urlsplit

from aiohttp import web

from bridge.config import Console
from bridge.configfile import read_secret
from bridge.errors import ConfigError

COOKIE = "sebridge_session"
CSRF_HEADER = "X-CSRF-Token"
SOURCE = "/sebridge/console"
TOKEN_CHARS_MIN = 16
USER_CHARS_MAX = 128
# One wrong token a second, whoever asks.
_WRONG_TOKEN_S = 1.0
_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
_OPEN_PATHS = ("/login", "/static/")

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer a form's Origin would be "null"
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Gate:
    def __init__(self, config: Console) -> None:
        self._config = config
        self._token = _read_token(config)
        self._secret = secrets.token_bytes(32)  # sessions end with the process
        self._wrong = asyncio.Lock()
        host, _ = config.address()
        self._hosts = {*_LOCAL_HOSTS, host.casefold(), *(h.casefold() for h in config.hosts)}
        self._hosts -= {"", "0.0.0.0", "::"}  # noqa: S104 - nobody is called so

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = self._refusal(request) or await handler(request)
        except web.HTTPException as answer:
            answer.headers.update(HEADERS)
            raise
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    def user(self, request: web.Request) -> str:
        """The name that a reverse proxy vouches for; empty without one."""
        name = self._config.user_header
        return request.headers.get(name, "").strip() if name else ""

    def source(self, request: web.Request) -> str:
        """Who approves, as the command's `source`: a URI reference."""
        user = self.user(request)
        return f"{SOURCE}/{quote(user, safe='@')}" if user else SOURCE

    def csrf_token(self, request: web.Request) -> str:
        """Our page gets it with its data, which no other site can read."""
        return self._sign(f"csrf {request.cookies.get(COOKIE, '')} {self.user(request)}")

    async def log_in(self, token: str) -> str | None:
        """The value of a session cookie, or None after a pause."""
        if self._token and _equal(token, self._token):
            expires = f"{time.time() + self._config.session_s:.0f}"
            return f"{expires}.{self._sign(f'session {expires}')}"
        async with self._wrong:
            await asyncio.sleep(_WRONG_TOKEN_S)
        return None

    def is_logged_in(self, request: web.Request) -> bool:
        if not self._token:
            return True
        scheme, _, bearer = request.headers.get("Authorization", "").partition(" ")
        if scheme.casefold() == "bearer" and _equal(bearer.strip(), self._token):
            return True
        expires, _, signature = request.cookies.get(COOKIE, "").partition(".")
        genuine = _equal(signature, self._sign(f"session {expires}"))
        return genuine and expires.isdecimal() and int(expires) > time.time()

    def _refusal(self, request: web.Request) -> web.Response | None:
        """The first check that fails; None lets the request in."""
        if _hostname(f"//{request.host}") not in self._hosts:
            text = f"This console is not called {request.host!r}: see console.hosts."
            return _text(421, text)
        if self._config.user_header and not _is_name(self.user(request)):
            return _text(401, f"The proxy did not say who you are ({self._config.user_header}).")
        if request.method not in {"GET", "HEAD"} and not self._is_same_origin(request):
            return _text(403, "This request did not come from the console's own page.")
        if not self.is_logged_in(request) and not request.path.startswith(_OPEN_PATHS):
            return _to_login() if request.path == "/" else _text(401, "Log in first.")
        return None

    def _is_same_origin(self, request: web.Request) -> bool:
        """Browsers send Origin with every POST; what lacks it is not our page."""
        origin = request.headers.get("Origin", "")
        if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            return False
        named = {host.casefold() for host in self._config.hosts}
        return _netloc(origin) == request.host or _hostname(origin) in named

    def is_genuine(self, request: web.Request) -> bool:
        """The page repeats the token that it was given."""
        return _equal(request.headers.get(CSRF_HEADER, ""), self.csrf_token(request))

    def _sign(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()


def _read_token(config: Console) -> str:
    if not config.token_file:
        return ""
    token = read_secret(config.token_file, "console.token_file")
    if len(token) < TOKEN_CHARS_MIN:
        raise ConfigError(
            f"console.token_file: the token in {config.token_file} is too short: "
            f"{TOKEN_CHARS_MIN} characters at least, such as `openssl rand -hex 32` gives"
        )
    return token


def _netloc(url: str) -> str:
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def _hostname(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").casefold()
    except ValueError:
        return ""


def _is_name(user: str) -> bool:
    return 0 < len(user) <= USER_CHARS_MAX and user.isprintable()


def _equal(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def _text(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text + "\n")


def _to_login() -> web.Response:
    return web.Response(status=303, headers={"Location": "/login"})
