# SPDX-License-Identifier: MIT
"""A longer way to a server: a proxy on loopback that holds bytes back, in their order."""
import asyncio
import threading


class Distance:
    """A port of `address` that is so much farther than `target`: half of it each way."""

    def __init__(self, host, port, seconds):
        self.target, self.seconds = (host, port), seconds
        self.loop = asyncio.new_event_loop()
        self.port = None

    async def _carry(self, reader, writer):
        queue = asyncio.Queue()

        async def write():
            while True:
                due, data = await queue.get()
                await asyncio.sleep(due - self.loop.time())
                if not data:
                    break
                writer.write(data)
            writer.close()
        writing = self.loop.create_task(write())
        try:
            while data := await reader.read(65536):
                queue.put_nowait((self.loop.time() + self.seconds / 2, data))
        except OSError:
            pass
        queue.put_nowait((self.loop.time(), b""))
        await writing

    async def _connect(self, reader, writer):
        far_reader, far_writer = await asyncio.open_connection(*self.target)
        await asyncio.gather(self._carry(reader, far_writer), self._carry(far_reader, writer),
                             return_exceptions=True)

    def __enter__(self):
        server = self.loop.run_until_complete(
            asyncio.start_server(self._connect, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()
