"""Calls the asynchronous half of E2B's Python SDK."""

import asyncio
import uuid

import e2b
import pytest
from e2b import AsyncSandbox, SandboxQuery


def test_life(acreate):
    async def calls():
        async with acreate() as create:
            key = str(uuid.uuid4())
            s = await create(metadata={"run": key}, timeout=60)
            assert await s.is_running() and (await s.get_info()).metadata == {"run": key}
            paginator = AsyncSandbox.list(query=SandboxQuery(metadata={"run": key}))
            assert [x.sandbox_id for x in await paginator.next_items()] == [s.sandbox_id]
            await s.set_timeout(120)
            assert await s.pause() is True
            assert await (await AsyncSandbox.connect(s.sandbox_id)).is_running()
            all_ = await asyncio.gather(*(create(idempotency_key=key) for _ in range(8)))
            assert len({x.sandbox_id for x in all_}) == 1
            assert await s.kill() is True and await s.kill() is False

    asyncio.run(calls())


def test_commands(acreate):
    async def calls():
        async with acreate() as create:
            s, out = await create(), []
            r = await s.commands.run("echo a; echo b >&2", on_stdout=out.append)
            assert (r.stdout, r.stderr, out) == ("a\n", "b\n", ["a\n"])
            with pytest.raises(e2b.CommandExitException):
                await s.commands.run("exit 3")
            found = await asyncio.gather(*(s.commands.run(f"sleep 0.1; echo {i}") for i in range(20)))
            assert [r.stdout for r in found] == [f"{i}\n" for i in range(20)]
            h = await s.commands.run("read x; echo got $x", background=True, stdin=True)
            await s.commands.send_stdin(h.pid, "one\n")
            assert (await h.wait()).stdout == "got one\n"
            with pytest.raises(e2b.TimeoutException):
                await s.commands.run("sleep 100", timeout=1)
            h = await s.commands.run("sleep 1000", background=True)
            await s.kill()
            with pytest.raises(e2b.SandboxNotRunningException):
                await h.wait()

    asyncio.run(calls())


def test_terminal(acreate):
    async def calls():
        async with acreate() as create:
            s, seen = await create(), bytearray()
            h = await s.pty.create(e2b.PtySize(rows=24, cols=80), on_data=seen.extend)
            await s.pty.send_stdin(h.pid, b"touch /tmp/reads; read x; stty size; exit\n")
            while not await s.files.exists("/tmp/reads"):  # see test_terminal of test_e2b.py
                await asyncio.sleep(0.05)
            await s.pty.resize(h.pid, e2b.PtySize(rows=33, cols=99))
            await s.pty.send_stdin(h.pid, b"\n")
            await h.wait()
            assert b"33 99" in seen

    asyncio.run(calls())


def test_files(acreate):
    async def calls():
        async with acreate() as create:
            s = await create()
            await s.files.write("dir/a", "text")
            assert await s.files.read("dir/a") == "text"
            assert [e.name for e in await s.files.list("dir")] == ["a"]
            seen, arrived = [], asyncio.Event()

            def note(event):
                seen.append(event.name)
                arrived.set()

            watch = await s.files.watch_dir("dir", on_event=note)
            await s.files.write("dir/b", "x")
            await asyncio.wait_for(arrived.wait(), 30)
            await watch.stop()
            assert "b" in seen
            await s.files.remove("dir")
            assert not await s.files.exists("dir")

    asyncio.run(calls())
