"""Pipelines: how calls are written to connections, and what their replies mean.

A Pipeline sends calls in one pipeline per server and sorts the replies: done, failed permanently, redirected, to be
retried. The store decides when to retry.

A Script is a Lua script as the store sends it: its name, its source and the SHA-1 by which the server knows it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from shoal.errors import StoreFull, StoreRefused
from shoal.store.connection import Connection, ConnectionLost, ReplyError, pack
from shoal.store.node import Node
from shoal.store.reply_errors import ReplyFault, classify, translate
from shoal.store.topology import Topology

Argument = bytes | str | int | float
UNDONE = object()
# Valkey's WAIT covers only the writes of its own connection. A repeated call changes nothing, so without this write
# WAIT would not cover the effects of the first call, which was sent on a connection that is gone. The first DEL lets
# the script run at maxmemory.
_MARK = """redis.call('DEL', KEYS[1]) redis.call('SET', KEYS[1], '') redis.call('DEL', KEYS[1]) return 1"""


class Call(NamedTuple):
    """One command to run: a script with its key, or (script None) any command."""

    script: Script | None
    key: str | None
    args: Sequence[Argument]

    def packed(self, link: Connection, *, with_source: bool) -> bytes:
        script = self.script
        if script is None:
            return pack(tuple(self.args))
        if with_source or script.sha not in link.known:
            head: tuple[Argument, ...] = ("EVAL", script.source, 1, self.key or "")
        else:
            head = ("EVALSHA", script.sha, 1, self.key or "")
        return pack((*head, *self.args))

    @property
    def doing(self) -> str:
        return f"script {self.script.name}" if self.script is not None else str(self.args[0])


class Pipeline:
    """The state of one `call_many`: calls to send with the script's source, calls redirected by ASK."""

    def __init__(self, topology: Topology, jobs: list[Call], results: list[Any], replicated: bool) -> None:
        self._topology = topology
        self._jobs = jobs
        self._results = results
        self._replicated = replicated
        self._with_source: set[int] = set()
        self._ask_redirects: dict[int, Node] = {}
        self._redirects = 0

    async def play(self, todo: list[int], deadline_mono: float) -> str:
        """Try every job in `todo` once; return the reason why some must wait, "" if they may be retried at once."""
        by_node: dict[Node, list[int]] = {}
        unserved = False
        for index in todo:
            node = self._ask_redirects.get(index) or self._topology.node(self._jobs[index].key)
            if node is None:
                unserved = True
            else:
                by_node.setdefault(node, []).append(index)
        if len(by_node) == 1 and not unserved:
            ((node, indexes),) = by_node.items()
            reasons = [await self._run_on(node, indexes, deadline_mono)]
        else:
            reasons = await asyncio.gather(*(self._run_on(n, i, deadline_mono) for n, i in by_node.items()))
        reason = next(filter(None, reasons), "no node serves the slot" if unserved else "")
        if reason:
            try:
                async with asyncio.timeout_at(deadline_mono):
                    await self._topology.refresh()
            except (ConnectionLost, TimeoutError) as error:
                reason = str(error) or reason
        return reason

    async def _run_on(self, node: Node, indexes: list[int], deadline_mono: float) -> str:
        jobs, results = self._jobs, self._results
        try:
            if node.current is not None and node.current.lost is None:
                link = node.current
            else:
                async with asyncio.timeout_at(deadline_mono):
                    link = await node.link()
            if self._replicated:
                await link.refresh_facts()
            waits = self._replicated and link.facts.confirms
            parts = []
            for index in indexes:
                if index in self._ask_redirects:
                    parts.append(pack(("ASKING",)))
                parts.append(jobs[index].packed(link, with_source=index in self._with_source))
            if waits:
                mark = f"{jobs[indexes[0]].key}:replicated"
                parts += [pack(("EVAL", _MARK, 1, mark)), pack(("WAIT", 1, link.wait_ms))]
            replies = await link.send(b"".join(parts), len(parts))
            position = 0
            reason = ""
            replied: list[tuple[int, Any]] = []
            for index in indexes:
                if self._ask_redirects.pop(index, None) is not None:
                    position += 1
                reply = replies[position]
                position += 1
                if isinstance(reply, ReplyError):
                    reason = self._handle_error(index, str(reply), node, link) or reason
                else:
                    replied.append((index, reply))
                    if (script := jobs[index].script) is not None:
                        link.known.add(script.sha)
            if waits:
                self._check_replicated(link, replies[-2], replies[-1])
            for index, reply in replied:
                results[index] = reply
        except (ConnectionLost, TimeoutError) as error:
            for index in indexes:
                self._ask_redirects.pop(index, None)
            return str(error) or node.reason
        node.worked()
        return reason

    def _check_replicated(self, link: Connection, mark_reply: Any, wait_reply: Any) -> None:
        """Raise ConnectionLost if no replica has confirmed the calls: they are repeated on the server of their keys.

        A primary without its replicas may have been replaced without its knowledge, so the topology is read again
        before the call is repeated.
        """
        for reply in (mark_reply, wait_reply):
            if isinstance(reply, ReplyError):
                if (fault := classify(str(reply))) is ReplyFault.FINAL:
                    error = translate(str(reply), link.where, "WAIT")
                    if isinstance(error, StoreFull | StoreRefused):
                        raise error
                if fault in (ReplyFault.FINAL, ReplyFault.ELSEWHERE):
                    # WAIT fails on a server that is a replica now.
                    link.close(str(reply))
                raise ConnectionLost(f"{link.where}: {reply}")
        if not isinstance(wait_reply, int) or wait_reply < 1:
            raise ConnectionLost(f"{link.where}: no replica has confirmed the write")

    def _handle_error(self, index: int, message: str, node: Node, link: Connection) -> str:
        """Handle the error reply to a job; return the reason to wait, "" to continue immediately."""
        fault = classify(message)
        if fault is ReplyFault.NOSCRIPT:
            self._with_source.add(index)
            return ""
        if fault is ReplyFault.ASK and self._jobs[index].script is not None:
            # The slot is moved key by key. A script accesses keys that may still be at the old node: it waits.
            return f"{node.where}: slot {message.split(' ')[1]} is being moved to another node"
        if fault in (ReplyFault.MOVED, ReplyFault.ASK):
            _, slot, endpoint = message.split(" ")[:3]
            self._redirects += 1
            if fault is ReplyFault.MOVED:
                self._topology.moved(int(slot), endpoint, node)
            else:
                self._ask_redirects[index] = self._topology.at(endpoint, node)
            # A slot map that redirects calls in circles is read again, after a pause.
            return f"{node.where}: {message}" if self._redirects > 5 * len(self._jobs) else ""
        if fault is ReplyFault.ELSEWHERE:
            link.close(message)
        if fault in (ReplyFault.ELSEWHERE, ReplyFault.WAIT):
            return f"{node.where}: {message}"
        self._results[index] = translate(message, node.where, self._jobs[index].doing)
        return ""


class Script:
    """One Lua script. Build it once: the constructor computes the SHA-1."""

    __slots__ = ("name", "sha", "source")

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.source = source
        # The Redis protocol identifies scripts by their SHA-1; it is not used for security.
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
