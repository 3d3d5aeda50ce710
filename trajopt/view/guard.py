"""Access control for the viewer's server: checks the Host and Origin headers of requests, and an optional token.

Pages of other sites can reach a server on this machine by DNS rebinding or by WebSocket; their Host or Origin header reveals
them. A token keeps out clients that do not know it.
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
"""Function of a websockets connection and request that returns a response, or None to accept the request."""


def is_loopback(host: str) -> bool:
    """True for a name or address that only this machine can reach."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_allowed(name: str | None, host: str) -> bool:
    """True if a Host header's name is valid for a server on ``host``.

    A loopback server accepts loopback names. Others also accept addresses (rebinding needs names) and the machine's names.
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
    """Return the reason to refuse a request, or None. headers: of websockets; host: address that the server listens on."""
    if token is not None:
        given = _request_token(headers, path)
        if given is None or not hmac.compare_digest(given.encode(), token.encode()):
            return "this view needs its token: open the address that was printed, which ends in ?token=..."
    hosts = headers.get_all("Host")
    name = _host_name(f"//{hosts[0]}") if len(hosts) == 1 else None
    if token is None and not is_allowed(name, host):
        return f"the name {name or 'missing'!r} does not belong to this view: open the address that was printed, or give it a token"
    origins = headers.get_all("Origin")
    if any(len(hosts) != 1 or urlsplit(origin).netloc != hosts[0] for origin in origins):
        return f"a page of {origins[0]} may not use this view"
    return None


def _request_token(headers: Any, path: str) -> str | None:
    """Return the token in a request's address, or else in its cookie."""
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
    """Return the cookie name of a port: browsers send cookies to all ports of a host."""
    hosts = headers.get_all("Host")
    port = hosts[0].rpartition(":")[2] if hosts else ""
    return f"{COOKIE}_{port if port.isdigit() else 80}"


def _host_name(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


@contextlib.contextmanager
def guarded(host: str, token: str | None) -> Iterator[None]:
    """Context in which a started viser server checks each request.

    Raises RuntimeError if the server started without the check, which means an unsupported version of viser.
    """
    from websockets.asyncio import server as websockets_server

    original, started = websockets_server.serve, []

    def serve(*args: Any, process_request: Check | None = None, **options: Any) -> Any:
        started.append(True)
        return original(*args, process_request=_request_check(process_request, host, token), **options)

    websockets_server.serve = serve  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        websockets_server.serve = original  # type: ignore[misc]
    if not started:
        raise RuntimeError("this version of viser serves without the check of requests: install viser 1.1")


def _request_check(inner: Check | None, host: str, token: str | None) -> Check:
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
