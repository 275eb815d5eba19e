"""The OpenAI Agents SDK with its `SQLiteSession` as a worker of the comparison."""

import os
from importlib.metadata import version
from platform import python_version

from agents import Agent, ModelResponse, Runner, SQLiteSession, Usage, set_tracing_disabled
from agents.models.interface import Model
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

import worker

set_tracing_disabled(True)


class Silent(Model):
    async def get_response(self, *args, **kwargs) -> ModelResponse:
        text = ResponseOutputText(text=worker.ANSWER, type="output_text", annotations=[])
        message = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


agent = Agent(name="agent", instructions=worker.SYSTEM, model=Silent())


def turns(work: dict):
    path = os.path.join(work["folder"], "agents.db") if work["store"] == "sqlite" else ":memory:"
    known: dict[str, SQLiteSession] = {}

    def turn(session: str):
        if session not in known:
            known[session] = SQLiteSession(session, path)
        return Runner.run(agent, worker.QUESTION, session=known[session])

    return turn


async def conversation(work: dict) -> dict:
    return await worker.conversation(work, turns(work))


async def sessions(work: dict) -> dict:
    return await worker.sessions(work, turns(work))


async def resume(work: dict) -> dict:
    return {"micros": await worker.timed(turns(work)("s"))}


async def said_version(_: dict) -> dict:
    return {"version": f"OpenAI Agents SDK {version('openai-agents')}, Python {python_version()}"}


worker.run({"conversation": conversation, "sessions": sessions, "resume": resume, "version": said_version})
