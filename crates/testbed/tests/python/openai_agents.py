"""The PyPI package `openai-agents`, unmodified, with the testbed's agents as its models. Argument: the server's address."""

import asyncio
import json
import sys
import urllib.request

import agents
import openai
import pydantic

address = sys.argv[1]
client = openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
agents.set_tracing_disabled(True)


def program(*responses):
    body = json.dumps({"responses": responses, "chunks": []}).encode()
    urllib.request.urlopen(urllib.request.Request(f"{address}/testbed/program", body))


def says(*content):
    return {"message": {"role": "model", "content": list(content)}, "finishReason": "stop"}


def calls(name, arguments):
    return says({"toolRequest": {"name": name, "input": arguments, "ref": "r1"}})


@agents.function_tool
def paint(color: str) -> str:
    """Paints."""
    return f"painted {color}"


class Dish(pydantic.BaseModel):
    dish: str


async def drive(model):
    def agent(name, **more):
        return agents.Agent(name="a", instructions="Be brief.", model=model(name, openai_client=client), **more)

    async def answer(said, name, **more):
        return await agents.Runner.run(agent(name, **more), said)

    one = await answer("one", "echoAgent")
    assert one.final_output.endswith("user:one"), one.final_output
    two = await answer([*one.to_input_list(), {"role": "user", "content": "two"}], "echoAgent")
    assert "user:one" in two.final_output and two.final_output.endswith("user:two"), two.final_output
    streamed = agents.Runner.run_streamed(agent("echoAgent"), "hi")
    async for _ in streamed.stream_events():
        pass
    assert streamed.final_output.endswith("user:hi"), streamed.final_output

    program(calls("paint", {"color": "red"}), says({"text": "Painted."}))
    assert (await answer("paint", "promptAgentWithStore", tools=[paint])).final_output == "Painted."
    program(calls("testTool", {}), says({"text": "Done."}))
    assert (await answer("go", "promptAgentWithTools")).final_output == "Done."
    program(says({"text": 'Sure: {"dish": "soup"}'}))
    assert (await answer("what?", "promptAgentWithState", output_type=Dish)).final_output == Dish(dish="soup")


async def main():
    await drive(agents.OpenAIResponsesModel)
    await drive(agents.OpenAIChatCompletionsModel)


asyncio.run(main())
print("ok")
