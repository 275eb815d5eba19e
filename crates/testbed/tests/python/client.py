"""Drives a testbed server with the HTTP client of the Python package `genkit`.

Argument: the server's address.
"""

import sys
import unittest

import httpx
from genkit.exp import AgentError, remote_agent

SERVER = sys.argv.pop(1)


def says(text):
    return {"message": {"role": "model", "content": [{"text": text}]}, "finishReason": "stop"}


def asks(name, request, ref):
    part = {"toolRequest": {"name": name, "input": request, "ref": ref}}
    return {"message": {"role": "model", "content": [part]}, "finishReason": "stop"}


async def program(responses, chunks=()):
    """Sets what the model answers next, and what it streams before each answer."""
    async with httpx.AsyncClient() as client:
        body = {"responses": responses, "chunks": list(chunks)}
        answer = await client.post(f"{SERVER}/testbed/program", json=body)
    assert answer.is_success, answer.text


def kept_by_server(name):
    return remote_agent(f"{SERVER}/{name}", state_management="server")


def kept_by_client(name):
    return remote_agent(f"{SERVER}/{name}", state_management="client")


def texts(messages):
    return ["".join(part.text or "" for part in message.content) for message in messages]


async def tool_answers(agent, snapshot_id):
    """What was answered to tool requests, as the server keeps it."""
    snapshot = await agent.get_snapshot(snapshot_id=snapshot_id)
    said = [message for message in snapshot.state.messages if message.role == "tool"]
    answers = [part.tool_response for message in said for part in message.content]
    return [(answer.name, answer.ref, answer.output) for answer in answers]


class RemoteAgent(unittest.IsolatedAsyncioTestCase):
    async def test_a_chat_goes_on_from_turn_to_turn(self):
        chat = kept_by_server("promptAgentWithStore").chat()

        await program([says("one")])
        first = await chat.send("first")
        await program([says("two")])
        second = await chat.send("second")

        self.assertEqual((first.text, second.text), ("one", "two"))
        self.assertNotEqual(first.snapshot_id, second.snapshot_id)
        self.assertEqual(first.session_id, second.session_id)
        self.assertEqual(texts(chat.messages), ["first", "one", "second", "two"])

    async def test_a_turn_is_streamed_as_it_is_made(self):
        chat = kept_by_server("promptAgentWithStore").chat()
        pieces = [{"content": [{"text": "héllo "}]}, {"content": [{"text": "wörld"}]}]
        await program([says("héllo wörld")], [pieces])

        turn = chat.send_stream("hi")
        spoken = [chunk.text async for chunk in turn.stream if chunk.text]
        response = await turn.response

        self.assertEqual(spoken, ["héllo ", "wörld"])
        self.assertEqual(response.text, "héllo wörld")

    async def test_a_client_that_keeps_the_state_brings_it_along(self):
        chat = kept_by_client("promptAgent").chat()

        await program([says("one")])
        await chat.send("first")
        await program([says("two")])
        await chat.send("second")

        self.assertEqual(texts(chat.messages), ["first", "one", "second", "two"])

    async def test_custom_state_is_followed_while_it_changes(self):
        chat = kept_by_client("customAgentWithMultiCustomState").chat()

        turn = chat.send_stream("work")
        seen = [chunk.custom async for chunk in turn.stream if chunk.custom is not None]
        await turn.response

        self.assertEqual(seen[0], {"counter": 1, "status": "working"})
        self.assertEqual(seen[-1], {"counter": 2, "status": "done"})
        self.assertEqual(chat.state, {"counter": 2, "status": "done"})

    async def test_artifacts_are_replaced_by_name(self):
        chat = kept_by_client("customAgentWithArtifacts").chat()

        await chat.send("draft")

        named = {artifact.name: artifact.parts[0].text for artifact in chat.artifacts}
        self.assertEqual(named, {"doc1": "v2", "doc2": "other"})

    async def test_an_interrupt_is_answered_with_respond(self):
        agent = kept_by_server("promptAgentWithInterrupt")
        chat = agent.chat()
        await program([asks("interruptTool", {"query": "sure?"}, "i1")])

        asked = await chat.send("do it")
        (interrupt,) = asked.interrupts
        await program([says("thank you")])
        answered = await chat.resume(respond=[interrupt.respond({"answer": "yes"})])

        self.assertEqual(asked.finish_reason, "interrupted")
        self.assertEqual((interrupt.name, interrupt.input), ("interruptTool", {"query": "sure?"}))
        self.assertEqual(answered.text, "thank you")
        self.assertEqual(
            await tool_answers(agent, answered.snapshot_id), [("interruptTool", "i1", {"answer": "yes"})]
        )

    async def test_an_interrupt_is_answered_with_restart_and_metadata(self):
        agent = kept_by_server("promptAgentWithRestartTool")
        chat = agent.chat()
        await program([asks("restartTool", {"action": "delete"}, "r1")])

        asked = await chat.send("do it")
        (interrupt,) = asked.interrupts
        restart = interrupt.restart(resumed_metadata={"approved": True})
        await program([says("deleted")])
        answered = await chat.resume(restart=[restart], metadata={"from": "python"})

        self.assertEqual(answered.text, "deleted")
        self.assertEqual(
            await tool_answers(agent, answered.snapshot_id),
            [("restartTool", "r1", {"result": "confirmed: delete"})],
        )

    async def test_an_interrupt_is_answered_with_a_restart_without_data(self):
        agent = kept_by_server("promptAgentWithRestartTool")
        chat = agent.chat()
        await program([asks("restartTool", {"action": "delete"}, "r1")])
        (interrupt,) = (await chat.send("do it")).interrupts

        await program([says("deleted")])
        answered = await chat.resume(restart=[interrupt.restart()])

        self.assertEqual(answered.text, "deleted")
        self.assertEqual(
            await tool_answers(agent, answered.snapshot_id),
            [("restartTool", "r1", {"result": "confirmed: delete"})],
        )

    async def test_a_tool_takes_the_answer_of_a_restart_from_wherever_the_client_puts_it(self):
        answers = [
            (lambda interrupt: {"restart": [interrupt.restart(resumed_metadata={"limit": 30})]}, "paid 30 of 30"),
            (lambda interrupt: {"restart": [interrupt.restart()], "metadata": {"limit": 20}}, "paid 20 of 20"),
            (lambda interrupt: {"restart": [interrupt.restart()]}, "paid 10 of 10"),
        ]
        for resume, output in answers:
            agent = kept_by_server("promptAgentWithApproval")
            chat = agent.chat()
            await program([asks("pay", {"sum": 50}, "p1")])
            (interrupt,) = (await chat.send("pay")).interrupts
            await program([says("paid")])

            answered = await chat.resume(**resume(interrupt))

            self.assertEqual(await tool_answers(agent, answered.snapshot_id), [("pay", "p1", output)])

    async def test_agents_that_use_every_addition_work_for_a_client_that_refuses_unknown_fields(self):
        for agent in [kept_by_server("extendedAgentWithStore"), kept_by_client("extendedAgent")]:
            chat = agent.chat()
            for dishes in [1, 2]:
                turn = chat.send_stream("soup")
                texts_of_turn = [chunk.text async for chunk in turn.stream if chunk.text]
                response = await turn.response

                self.assertEqual(texts_of_turn, ["Leek ", "soup."])
                self.assertEqual(response.text, "Leek soup.")
                self.assertEqual(chat.state["dishes"], dishes)
        agent = kept_by_server("extendedAgentWithStore")
        first = await agent.chat().send("soup")
        snapshot = await agent.get_snapshot(snapshot_id=first.snapshot_id)
        self.assertEqual(snapshot.status, "completed")
        self.assertEqual(snapshot.state.custom, {"dishes": 1})

    async def test_a_prompt_agent_with_a_prompt_input_and_snapshots_in_its_turns_works(self):
        agent = kept_by_server("extendedPromptAgent")
        chat = agent.chat()
        await program([asks("taste", {}, "t1"), says("too salty")])

        answered = await chat.send("well?")
        loaded = await agent.load_chat(session_id=answered.session_id)

        self.assertEqual(answered.text, "too salty")
        self.assertEqual(texts(loaded.messages)[-1], "too salty")

    async def test_a_background_run_with_every_addition_is_waited_for(self):
        chat = kept_by_server("extendedAgentWithStore").chat()

        snapshot = await (await chat.detach("soup")).wait(interval=0.01)

        self.assertEqual(snapshot.status, "completed")
        self.assertEqual(texts(snapshot.state.messages), ["soup", "Leek soup."])

    async def test_with_the_header_the_additions_are_sent_and_this_client_refuses_them(self):
        agent = remote_agent(
            f"{SERVER}/extendedAgentWithStore",
            state_management="server",
            headers={"x-everturn-extensions": "1"},
        )

        with self.assertRaisesRegex(Exception, "status|snapshotIds|snapshot_ids"):
            await agent.chat().send("soup")

    async def test_a_detached_turn_goes_on_and_is_waited_for(self):
        chat = kept_by_server("promptAgentWithStore").chat()
        await program([says("in the background")])

        task = await chat.detach("take your time")
        snapshot = await task.wait(interval=0.01)

        self.assertEqual(snapshot.status, "completed")
        self.assertEqual(texts(snapshot.state.messages), ["take your time", "in the background"])

    async def test_a_detached_turn_is_aborted(self):
        agent = kept_by_server("customAgentBlocking")
        task = await agent.chat().detach("block")

        await task.abort()
        snapshot = await task.wait(interval=0.01)

        self.assertEqual(snapshot.status, "aborted")

    async def test_a_chat_is_loaded_by_snapshot_and_by_session(self):
        agent = kept_by_server("promptAgentWithStore")
        chat = agent.chat()
        await program([says("one")])
        first = await chat.send("first")
        await program([says("two")])
        await chat.send("second")

        earlier = await agent.load_chat(snapshot_id=first.snapshot_id)
        latest = await agent.load_chat(session_id=first.session_id)

        self.assertEqual(texts(earlier.messages), ["first", "one"])
        self.assertEqual(texts(latest.messages), ["first", "one", "second", "two"])

    async def test_a_failed_turn_is_an_error_that_says_why(self):
        chat = kept_by_server("customAgentFailing").chat()

        with self.assertRaises(AgentError) as failed:
            await chat.send("go")

        self.assertEqual(failed.exception.status, "INTERNAL")

    async def test_a_snapshot_that_is_not_there_is_none(self):
        agent = kept_by_server("promptAgentWithStore")

        self.assertIsNone(await agent.get_snapshot(snapshot_id="no-such-snapshot"))

    async def test_a_refused_init_keeps_its_status(self):
        chat = kept_by_server("promptAgentWithStore").chat(snapshot_id="no-such-snapshot")

        with self.assertRaises(Exception) as refused:
            await chat.send("hi")

        self.assertEqual(refused.exception.status, "NOT_FOUND")


if __name__ == "__main__":
    unittest.main(verbosity=2)
