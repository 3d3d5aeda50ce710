"""Access control of the viewer's server: the Host and Origin headers of a request, and an optional token.

Pages of other sites can send requests to a server on this machine: by a name of theirs that leads here (DNS rebinding), or by a
WebSocket. Their Host or Origin header gives them away. A token keeps out whoever does not know it.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import socket
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

COOKIE = "trajopt_token"
"""Name of the cookie, before its port, that carries the token after the first request."""
QUERY = "token"
Check = Callable[[Any, Any], Any]
"""From a connection and a request of websockets to a response, or None to go on."""


def is_loopback(host: str) -> bool:
    """True for a name or address that this machine alone reaches."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_allowed(name: str | None, host: str) -> bool:
    """True if a Host header's name may stand for a server on ``host``.

    A loopback server has loopback names. Any other has addresses, which no rebinding needs, its own name and this machine's.
    """
    if name is None:
        return False
    if is_loopback(name):
        return True
    if is_loopback(host):
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in {host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}
    return True


def refusal(headers: Any, path: str, host: str, token: str | None) -> str | None:
    """The reason why a request is refused, or None. headers: of websockets; host: on which the server listens."""
    if token is not None:
        given = _given_token(headers, path)
        if given is None or not hmac.compare_digest(given.encode(), token.encode()):
            return "this view needs its token: open the address that was printed, which ends in ?token=..."
    hosts = headers.get_all("Host")
    name = _name(f"//{hosts[0]}") if len(hosts) == 1 else None
    if token is None and not is_allowed(name, host):
        return f"the name {name or 'missing'!r} does not belong to this view: open the address that was printed, or give it a token"
    origins = headers.get_all("Origin")
    if any(len(hosts) != 1 or urlsplit(origin).netloc != hosts[0] for origin in origins):
        return f"a page of {origins[0]} may not use this view"
    return None


def _given_token(headers: Any, path: str) -> str | None:
    """The token in the address of a request, else in its cookie."""
    asked = parse_qs(urlsplit(path).query).get(QUERY)
    if asked:
        return asked[0]
    for line in headers.get_all("Cookie"):
        for pair in line.split(";"):
            name, _, value = pair.strip().partition("=")
            if name == _cookie_name(headers):
                return value
    return None


def _cookie_name(headers: Any) -> str:
    """The name of the cookie of a port: browsers send cookies to all ports of a host."""
    hosts = headers.get_all("Host")
    port = hosts[0].rpartition(":")[2] if hosts else ""
    return f"{COOKIE}_{port if port.isdigit() else 80}"


def _name(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


@contextlib.contextmanager
def guarded(host: str, token: str | None) -> Iterator[None]:
    """Within, a viser server that starts checks each request before it answers.

    Raises RuntimeError if the server started without the check: a version of viser that serves in another way.
    """
    from websockets.asyncio import server as websockets_server

    original, started = websockets_server.serve, []

    def serve(*args: Any, process_request: Check | None = None, **options: Any) -> Any:
        started.append(True)
        return original(*args, process_request=_checked(process_request, host, token), **options)

    websockets_server.serve = serve  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        websockets_server.serve = original  # type: ignore[misc]
    if not started:
        raise RuntimeError("this version of viser serves without the check of requests: install viser 1.1")


def _checked(inner: Check | None, host: str, token: str | None) -> Check:
    def check(connection: Any, request: Any) -> Any:
        reason = refusal(request.headers, request.path, host, token)
        if reason is not None:
            return connection.respond(HTTPStatus.FORBIDDEN, reason + "\n")
        if token is not None and QUERY in parse_qs(urlsplit(request.path).query):
            response = connection.respond(HTTPStatus.SEE_OTHER, "")
            response.headers["Location"] = "/"
            cookie = f"{_cookie_name(request.headers)}={token}; HttpOnly; SameSite=Lax; Path=/"
            response.headers["Set-Cookie"] = cookie
            return response
        return None if inner is None else inner(connection, request)

    return check
