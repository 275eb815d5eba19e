"""Times turns of one thread through LangGraph's PostgresSaver: seconds for all turns, on one line.

usage: langgraph_saver.py URL TURNS TEXT_FILE
"""

import random
import sys
import time
from typing import Annotated, TypedDict

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

TURN = 2048


class State(TypedDict):
    messages: Annotated[list, add_messages]


def main(url: str, turns: int, text_file: str) -> None:
    with open(text_file, encoding="utf-8") as file:
        text = file.read()
    chosen = random.Random(1)
    answers = {"next": ""}
    graph = StateGraph(State)
    graph.add_node("answer", lambda state: {"messages": [("ai", answers["next"])]})
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
        thread = f"bench-{time.time_ns()}"
        agent = graph.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": thread}}
        begun = time.perf_counter()
        for _ in range(turns):
            start = chosen.randrange(len(text) - TURN)
            piece = text[start : start + TURN]
            answers["next"] = piece[200:]
            agent.invoke({"messages": [("user", piece[:200])]}, config)
        print(time.perf_counter() - begun)
        saver.delete_thread(thread)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
