"""The server's life: a socket that only this machine reaches unless there are tokens, and an end in good order."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator
from functools import partial

import msgspec
import uvicorn

from shoal.api.app import application
from shoal.api.auth import Tokens, is_loopback
from shoal.api.request import ApiServer
from shoal.errors import SettingsError
from shoal.frontier import Frontier
from shoal.operations.events import Emit
from shoal.operations.maintenance import Maintainer
from shoal.settings import ApiSettings, Settings

# Whoever asks waits: a store that is away for longer is away.
_PATIENCE_SECONDS = 5.0
_GRACE_SECONDS = 10
_MOST_CONNECTIONS = 1000


class _Uvicorn(uvicorn.Server):
    """Tells streams to end before it waits for them."""

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event) -> None:
        super().__init__(config)
        self._stopping = stopping

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to `stopped_by_signals`, which covers more than `serve`."""
        yield

    @contextlib.contextmanager
    def stopped_by_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM, also before `serve`. Unlike uvicorn, do not raise the signal again at the end."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stopping.set()
        await super().shutdown(sockets)


async def run(settings: Settings, *, tell: Emit) -> None:
    """Serve until SIGTERM or SIGINT."""
    tokens = Tokens(settings.tokens)
    door = _bound(settings.api, tokens)
    where = msgspec.structs.replace(
        settings.store, patience_seconds=min(_PATIENCE_SECONDS, settings.store.patience_seconds)
    )
    with contextlib.closing(door):
        async with await Frontier.from_settings(
            msgspec.structs.replace(settings, store=where), on_warning=partial(tell, event="store.trouble")
        ) as frontier:
            server = ApiServer(frontier, settings)
            config = uvicorn.Config(
                application(server, tell=tell), lifespan="off", log_config=None, access_log=False,
                server_header=False, proxy_headers=False, limit_concurrency=_MOST_CONNECTIONS,
                timeout_keep_alive=15, timeout_graceful_shutdown=_GRACE_SECONDS, ws="none", http="h11",
            )  # fmt: skip
            server.tender = Maintainer(frontier, settings, tell=tell)
            tending = asyncio.create_task(server.tender.run())
            uvicorn_server = _Uvicorn(config, server.stopping)
            try:
                host, port = door.getsockname()[:2]
                shown = f"[{host}]" if ":" in host else host
                store, url = frontier.shards.store.shown, f"http://{shown}:{port}"
                # A supervisor that reads the first line may stop the server at once: handle signals before it.
                with uvicorn_server.stopped_by_signals():
                    tell(f"Serving {store} at {url}. Ctrl-C ends it.", event="serve.begin", store=store, url=url)
                    if not tokens:
                        tell("There are no tokens: whoever uses this machine may do everything.", event="serve.open")
                    await uvicorn_server.serve(sockets=[door])
                tell("The server has ended.", event="serve.end")
            finally:
                tending.cancel()
                await asyncio.gather(tending, return_exceptions=True)


def _bound(where: ApiSettings, tokens: Tokens) -> socket.socket:
    """The listening socket. Addresses that others reach need tokens."""
    if not tokens and not is_loopback(where.host):
        raise SettingsError(
            f"api.host is {where.host!r}, which other machines reach, and there are no [tokens]; make one with "
            "`shoal serve --make-token admin`, or listen on 127.0.0.1."
        )
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            where.host, where.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        door = socket.socket(family, kind, protocol)
        try:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            door.bind(address)
            door.listen(512)
        except BaseException:
            door.close()
            raise
    except OSError as error:
        why = error.strerror or str(error)
        raise SettingsError(f"The server cannot listen on {where.host} port {where.port}: {why}.") from None
    return door
