"""A server in the process of a test, and short forms of requests to it."""

import asyncio
import json

import pytest


def run(scenario, model=None, **settings):
    """Runs ``await scenario(client, server)`` against a server of `model`, if it is given."""
    aiohttp = pytest.importorskip("aiohttp")
    server_module = pytest.importorskip("albert.serving.server")

    async def serve():
        server = server_module.Server(server_module.Settings(port=0, **settings))
        async with (
            server.listening() as (host, port, _),
            aiohttp.ClientSession(f"http://{host}:{port}") as client,
        ):
            if model is not None:
                server.start(model)
            await asyncio.wait_for(scenario(client, server), 60)
        server.close()

    asyncio.run(serve())


async def _exchange(request):
    async with request as response:
        assert response.content_type == "application/json", await response.text()
        return response.status, await response.json(), response.headers


async def post(client, path, value, **headers):
    """(status, JSON, headers) of a reply; `value` is sent as JSON unless it is bytes."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return await _exchange(client.post(path, data=body, headers=headers))


async def get(client, path, **headers):
    """(status, JSON, headers) of a reply."""
    return await _exchange(client.get(path, headers=headers))


async def text(client, path):
    """Text of a reply with status 200."""
    async with client.get(path) as response:
        assert response.status == 200
        return await response.text()
