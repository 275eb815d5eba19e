"""What the Python workers of the comparison share: the loop that reads work and answers it, payloads, times."""

import asyncio
import json
import os
import sys
import time
import traceback
from collections.abc import Awaitable, Callable

SYSTEM = "You are part of a comparison."
QUESTION = "q" * 500
ANSWER = "a" * 1500

Work = Callable[[dict], Awaitable[dict]]


def median(times: list[float]) -> float:
    return sorted(times)[len(times) // 2]


def bytes_in(folder: str) -> int:
    return sum(os.path.getsize(os.path.join(root, name)) for root, _, names in os.walk(folder) for name in names)


async def timed(turn: Awaitable) -> float:
    """Microseconds that a turn takes."""
    began = time.perf_counter()
    await turn
    return (time.perf_counter() - began) * 1e6


async def conversation(work: dict, turn: Callable[[str], Awaitable]) -> dict:
    """One conversation, one turn per invocation; the last turns are measured."""
    for _ in range(work["turns"] - work["samples"]):
        await turn("s")
    times = [await timed(turn("s")) for _ in range(work["samples"])]
    return {"micros": median(times), "bytes": bytes_in(work["folder"]) if "folder" in work else None}


async def sessions(work: dict, turn: Callable[[str], Awaitable]) -> dict:
    """Many conversations at once."""

    async def one(session: int) -> list[float]:
        return [await timed(turn(f"s{session}")) for _ in range(work["turns"])]

    began = time.perf_counter()
    all_times = await asyncio.gather(*(one(session) for session in range(work["sessions"])))
    seconds = time.perf_counter() - began
    times = sorted(time for times in all_times for time in times)
    return {"perSecond": len(times) / seconds, "p50": median(times), "p99": times[len(times) * 99 // 100]}


async def hold(work: dict, turn: Callable[[str], Awaitable]) -> dict:
    """Conversations that are kept."""
    for session in range(work["sessions"]):
        for _ in range(work["turns"]):
            await turn(f"s{session}")
    return {}


def run(works: dict[str, Work]) -> None:
    """Does the work that is asked for, a line each, until the input ends."""

    async def loop() -> None:
        out, sys.stdout = sys.stdout, sys.stderr  # What a library prints is no answer.
        while line := await asyncio.to_thread(sys.stdin.readline):
            work = json.loads(line)
            try:
                does = works.get(work["work"])
                answer = await does(work) if does else {"unsupported": True}
            except Exception:
                answer = {"error": traceback.format_exc()}
            out.write(json.dumps(answer) + "\n")
            out.flush()

    asyncio.run(loop())
