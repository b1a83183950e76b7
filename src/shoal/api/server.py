"""Running the API server: a socket on loopback unless tokens are configured, and a graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
from collections.abc import Iterator
from functools import partial

import msgspec
import uvicorn

from shoal.api.app import application
from shoal.api.auth import Tokens, is_loopback
from shoal.api.connections import ConnectionLimits
from shoal.api.request import ApiServer
from shoal.errors import SettingsError
from shoal.frontier import Frontier
from shoal.operations.events import Emit
from shoal.operations.maintenance import Maintainer
from shoal.operations.service_manager import ServiceManager
from shoal.operations.spider_options import load_spider_options
from shoal.settings import ApiSettings, Settings

# A client waits for the response, so an unavailable store is reported after this time.
_STORE_SECONDS = 5.0
_GRACE_SECONDS = 10


class _Uvicorn(uvicorn.Server):
    """Ends event streams before it waits for open connections."""

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event, manager: ServiceManager, status: str) -> None:
        super().__init__(config)
        self._stopping = stopping
        self._manager = manager
        self._status = status

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `stopped_by_signals`, which covers more than `serve`."""
        yield

    @contextlib.contextmanager
    def stopped_by_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM, also before `serve`. Unlike uvicorn, it does not raise the signal again."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._manager.ready(self._status)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._manager.stopping("Waiting for open requests.")
        self._stopping.set()
        await super().shutdown(sockets)


async def run(settings: Settings, *, emit: Emit) -> None:
    """Serve until SIGTERM or SIGINT."""
    tokens = Tokens(settings.tokens)
    listener = _listen(settings.api, tokens)
    store_settings = msgspec.structs.replace(
        settings.store, timeout_seconds=min(_STORE_SECONDS, settings.store.timeout_seconds)
    )
    with contextlib.closing(listener):
        async with await Frontier.from_settings(
            msgspec.structs.replace(settings, store=store_settings), on_warning=partial(emit, event="store.trouble")
        ) as frontier:
            server = ApiServer(frontier, settings)
            server.spider_options = load_spider_options(settings.spiders, emit=emit)
            config = uvicorn.Config(
                application(server, emit=emit), lifespan="off", log_config=None, access_log=False,
                server_header=False, proxy_headers=False, timeout_keep_alive=15,
                timeout_graceful_shutdown=_GRACE_SECONDS, ws="none",
                http=ConnectionLimits(settings.api.connections_per_address).protocol(),
            )  # fmt: skip
            server.maintainer = Maintainer(frontier, settings, emit=emit)
            host, port = listener.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            store, url = frontier.store_name, f"http://{shown}:{port}"
            manager, status = ServiceManager(), f"Serving {store} at {url}"
            tasks = [
                asyncio.create_task(server.maintainer.run()), asyncio.create_task(manager.keep_informed(lambda: status))
            ]  # fmt: skip
            uvicorn_server = _Uvicorn(config, server.stopping, manager, status)
            try:
                # Signals are handled before the first line: a process that reads the line may send one at once.
                with uvicorn_server.stopped_by_signals():
                    emit(
                        f"Serving {store} at {url}. Press Ctrl-C to stop.", event="serve.started", store=store, url=url
                    )
                    if not tokens:
                        emit(
                            "No tokens are configured: every user of this machine has full access.", event="serve.open"
                        )
                    await uvicorn_server.serve(sockets=[listener])
                emit("The server has stopped.", event="serve.stopped")
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


def _listen(api: ApiSettings, tokens: Tokens) -> socket.socket:
    """The listening socket. An address that other machines can reach requires tokens."""
    if not tokens and not is_loopback(api.host):
        raise SettingsError(
            f"api.host is {api.host!r}, which other machines can reach, but no [tokens] are configured. Create one "
            "with `shoal serve --make-token admin`, or listen on 127.0.0.1."
        )
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            api.host, api.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(512)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "; pass another --port" if error.errno == errno.EADDRINUSE else ""
        raise SettingsError(f"Cannot listen on {api.host} port {api.port}: {reason}{hint}.") from None
    return listener
