"""LangGraph with its SQLite and PostgreSQL checkpointers as a worker of the comparison."""

import os
from contextlib import AsyncExitStack
from importlib.metadata import version
from platform import python_version
from typing import Annotated, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

import worker


class State(TypedDict):
    messages: Annotated[list, add_messages]


graph = StateGraph(State)
graph.add_node("answer", lambda state: {"messages": [("ai", worker.ANSWER)]})
graph.add_edge(START, "answer")
graph.add_edge("answer", END)
kept = []


async def compiled(work: dict, stack: AsyncExitStack):
    match work["store"]:
        case "memory":
            saver = InMemorySaver()
        case "sqlite":
            saver = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(os.path.join(work["folder"], "graph.db")))
        case "postgres":
            saver = await stack.enter_async_context(AsyncPostgresSaver.from_conn_string(work["url"]))
            await saver.setup()
    return graph.compile(checkpointer=saver)


def turns(agent, work: dict):
    run = os.path.basename(work.get("folder", ""))

    def turn(session: str):
        config = {"configurable": {"thread_id": f"{run}-{session}"}}
        return agent.ainvoke({"messages": [("user", worker.QUESTION)]}, config)

    return turn


def with_turns(measure):
    async def work_with(work: dict) -> dict:
        async with AsyncExitStack() as stack:
            return await measure(work, turns(await compiled(work, stack), work))

    return work_with


async def resume(work: dict) -> dict:
    async def resumed():
        async with AsyncExitStack() as stack:
            await turns(await compiled(work, stack), work)("s")

    return {"micros": await worker.timed(resumed())}


async def fork(work: dict) -> dict:
    async with AsyncExitStack() as stack:
        agent = await compiled(work, stack)
        turn = turns(agent, work)
        thread = f"{os.path.basename(work.get('folder', ''))}-s"
        middle = None
        for done in range(work["turns"]):
            await turn("s")
            if done == work["turns"] // 2:
                middle = (await agent.aget_state({"configurable": {"thread_id": thread}})).config
        return {"micros": await worker.timed(agent.ainvoke({"messages": [("user", worker.QUESTION)]}, middle))}


async def hold(work: dict) -> dict:
    agent = graph.compile(checkpointer=InMemorySaver())
    kept.append(agent)
    return await worker.hold(work, turns(agent, work))


async def said_version(_: dict) -> dict:
    return {"version": f"LangGraph {version('langgraph')}, Python {python_version()}"}


worker.run(
    {
        "conversation": with_turns(worker.conversation),
        "sessions": with_turns(worker.sessions),
        "fork": fork,
        "resume": resume,
        "hold": hold,
        "version": said_version,
    }
)
