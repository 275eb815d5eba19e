"""The official Python client against the kitchen: client.py URL STDIO_PROGRAM."""

import asyncio
import sys

from mcp import Client, StdioServerParameters
from mcp.types import ElicitResult


async def accept(context, params):
    assert params.message == "Pay 7?", params
    return ElicitResult(action="accept", content={"by": "Ada"})


async def drive(client):
    tools = await client.list_tools()
    assert "add" in [tool.name for tool in tools.tools], tools
    total = await client.call_tool("add", {"a": 2, "b": 3})
    assert total.structured_content == {"total": 5}, total
    prompt = await client.get_prompt("recipe", {"dish": "leek soup", "guests": "4"})
    assert "leek soup" in prompt.messages[-1].content.text, prompt
    menu = await client.read_resource("kitchen://menu")
    assert menu.contents[0].text == "Leek soup.", menu


async def main():
    url, program = sys.argv[1:]
    for mode in ["auto", "legacy"]:
        async with Client(url, mode=mode, elicitation_callback=accept) as client:
            version = client.protocol_version
            assert (version == "2026-07-28") == (mode == "auto"), version
            await drive(client)
            parrot = await client.call_tool("parrot", {"message": "hello"})
            assert parrot.structured_content["sessionId"], parrot
            failed = await client.call_tool("spill", {})
            assert failed.is_error and failed.content[0].text == "no soup today", failed
            paid = await client.call_tool("pay", {"euros": 7})
            if mode == "auto":
                assert paid.content[0].text == '7 paid, allowed by "Ada"', paid
            else:
                assert paid.is_error and "Pay 7?" in paid.content[0].text, paid
        async with Client(StdioServerParameters(command=program), mode=mode) as client:
            await drive(client)
    print("ok")


asyncio.run(main())
