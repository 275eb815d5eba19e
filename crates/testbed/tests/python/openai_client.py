"""The PyPI package `openai`, unmodified, against the testbed. Argument: the server's address."""

import json
import sys
import urllib.request

import openai
import pydantic

address = sys.argv[1]
client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)


def program(responses, chunks=()):
    body = json.dumps({"responses": responses, "chunks": list(chunks)}).encode()
    urllib.request.urlopen(urllib.request.Request(f"{address}/testbed/program", body))


def says(*content):
    return {"message": {"role": "model", "content": list(content)}, "finishReason": "stop"}


model = "echoAgent"
assert model in [entry.id for entry in client.models.list()]

first = client.responses.create(model=model, input="one", instructions="Rhyme.")
assert first.output_text.startswith("system:You are part of a test."), first.output_text
second = client.responses.create(model=model, input="two", previous_response_id=first.id)
assert "user:one" in second.output_text
assert client.responses.retrieve(first.id).output_text == first.output_text
assert client.responses.input_items.list(first.id).data[0].content[0].text == "one"

with client.responses.stream(model=model, input="streamed", conversation="python") as stream:
    deltas = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
    final = stream.get_final_response()
assert final.output_text == deltas, (final.output_text, deltas)

program([says({"toolRequest": {"name": "interruptTool", "input": {"query": "why?"}, "ref": "r1"}}), says({"text": "Fine."})])
asking = client.responses.create(model="promptAgentWithInterrupt", input="ask")
call = asking.output[0]
assert call.type == "function_call", call
answer = {"type": "function_call_output", "call_id": call.call_id, "output": json.dumps({"answer": "so"})}
done = client.responses.create(model="promptAgentWithInterrupt", input=[answer], previous_response_id=asking.id)
assert done.output_text == "Fine.", done

program([says({"text": "Later."})])
run = client.responses.create(model="promptAgentWithStore", input="work", background=True)
while run.status in ("queued", "in_progress"):
    run = client.responses.retrieve(run.id)
assert run.output_text == "Later.", run

client.responses.delete(second.id)
try:
    client.responses.retrieve(second.id)
    raise AssertionError("a deleted response is there")
except openai.NotFoundError as error:
    assert error.code == "response_not_found", error.code
try:
    client.responses.create(model="nobody", input="hi")
    raise AssertionError("nobody answered")
except openai.NotFoundError as error:
    assert error.code == "model_not_found" and error.param == "model"

messages = [{"role": "user", "content": "hi"}]
chat = client.chat.completions.create(model=model, messages=messages)
assert chat.choices[0].message.content == "system:You are part of a test. | user:hi"
with client.chat.completions.stream(model=model, messages=messages) as stream:
    for _ in stream:
        pass
    assert stream.get_final_completion().choices[0].message.content == chat.choices[0].message.content


class Dish(pydantic.BaseModel):
    name: str


dish = says({"text": 'Sure: {"name": "soup"}'})
formed = "promptAgentWithState"
program([dish, dish, dish, dish])
assert client.responses.parse(model=formed, input="what?", text_format=Dish).output_parsed == Dish(name="soup")
with client.responses.stream(model=formed, input="what?", text_format=Dish) as stream:
    assert stream.get_final_response().output_parsed == Dish(name="soup")
parsed = client.chat.completions.parse(model=formed, messages=messages, response_format=Dish)
assert parsed.choices[0].message.parsed == Dish(name="soup")
with client.chat.completions.stream(model=formed, messages=messages, response_format=Dish) as stream:
    assert stream.get_final_completion().choices[0].message.parsed == Dish(name="soup")
print("ok")
