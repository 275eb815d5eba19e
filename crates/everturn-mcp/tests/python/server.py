"""A server of the stateless version, made with the official Python package."""

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

server = MCPServer("python")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
async def pay(euros: int, context: Context) -> str | InputRequiredResult:
    """Pays, when somebody allows it."""
    answers = context.input_responses
    if not answers:
        schema = {"type": "object", "properties": {"by": {"type": "string"}}, "required": ["by"]}
        params = ElicitRequestFormParams(message=f"Pay {euros}?", requested_schema=schema)
        return InputRequiredResult(input_requests={"approval": ElicitRequest(params=params)}, request_state="seven")
    assert context.request_state == "seven", context.request_state
    return f"{euros} paid, allowed by {answers['approval'].content['by']}"


@server.tool()
async def grow(context: Context) -> str:
    """Adds a tool."""
    server.add_tool(lambda: "here", name="grown", description="New.")
    await context.notify_tools_changed()
    return "grown"


server.run("stdio")
