"""Websockets alone: python -m benchmarks.echo BYTES answers each frame with so many."""

import asyncio
import sys

from websockets.asyncio.server import ServerConnection, serve


async def main(answer: bytes) -> None:
    async def converse(connection: ServerConnection) -> None:
        async for _ in connection:
            await connection.send(answer)

    async with serve(converse, "127.0.0.1", 0, compression=None) as server:
        print("ws://{}:{}".format(*server.sockets[0].getsockname()), flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(bytes(int(sys.argv[1]))))
