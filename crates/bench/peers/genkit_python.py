"""Genkit's Python agents as a worker of the comparison."""

import itertools
from importlib.metadata import version
from platform import python_version

from genkit import Message, Part
from genkit.exp import FileSessionStore, Genkit, InMemorySessionStore
from genkit.model import ModelRequest, ModelResponse

import worker

ai = Genkit()
numbers = itertools.count()
kept = []


async def silent(request: ModelRequest, context) -> ModelResponse:
    return ModelResponse(message=Message(role="model", content=[Part(text=worker.ANSWER)]), finish_reason="stop")


ai.define_model("silent", silent)


def agent(work: dict):
    store = FileSessionStore(work["folder"]) if work["store"] == "file" else InMemorySessionStore()
    return ai.define_agent(name=f"agent{next(numbers)}", model="silent", system=worker.SYSTEM, store=store)


def turns(work: dict):
    defined = agent(work)
    return lambda session: defined.chat(session_id=session).send(worker.QUESTION)


async def fork(work: dict) -> dict:
    defined = agent(work)
    middle = None
    for done in range(work["turns"]):
        reply = await defined.chat(session_id="s").send(worker.QUESTION)
        if done == work["turns"] // 2:
            middle = reply.snapshot_id
    return {"micros": await worker.timed(defined.chat(snapshot_id=middle).send(worker.QUESTION))}


async def resume(work: dict) -> dict:
    return {"micros": await worker.timed(turns(work)("s"))}


async def conversation(work: dict) -> dict:
    return await worker.conversation(work, turns(work))


async def sessions(work: dict) -> dict:
    return await worker.sessions(work, turns(work))


async def hold(work: dict) -> dict:
    kept.append(turns({"store": "memory"}))
    return await worker.hold(work, kept[-1])


async def said_version(_: dict) -> dict:
    return {"version": f"Genkit Python {version('genkit')}, Python {python_version()}"}


worker.run(
    {
        "conversation": conversation,
        "sessions": sessions,
        "fork": fork,
        "resume": resume,
        "hold": hold,
        "version": said_version,
    }
)
