"""OpenAI's Agents SDK, which tells its own processors."""

import json

import httpx2
from agents import Agent, OpenAIResponsesModel, Runner, SQLiteSession, function_tool
from openai import AsyncOpenAI
from scenes import Tools, kind_of, taken

USAGE = {
    "input_tokens": 100,
    "output_tokens": 20,
    "total_tokens": 120,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 5},
}


class Responses(httpx2.AsyncBaseTransport):
    """The Responses API, without a socket."""

    def __init__(self, *turns):
        self.turns, self.count = list(turns), 0

    async def handle_async_request(self, request):
        self.count += 1
        try:
            turn = taken(self.turns)
        except ConnectionError as error:
            return httpx2.Response(500, json={"error": {"message": str(error)}}, request=request)
        output = [self.item(part) for part in turn]
        body = {
            "id": f"resp_{self.count}",
            "object": "response",
            "created_at": 1_700_000_000,
            "model": "scripted",
            "status": "completed",
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": USAGE,
        }
        if not json.loads(request.content).get("stream"):
            return httpx2.Response(200, json=body, request=request)
        events = [{"type": "response.created", "response": {**body, "output": []}}]
        events += [
            {"type": "response.output_item.done", "output_index": at, "item": item}
            for at, item in enumerate(output)
        ]
        events.append({"type": "response.completed", "response": body})
        numbered = [{**event, "sequence_number": at} for at, event in enumerate(events)]
        text = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in numbered)
        kind = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=kind, text=text, request=request)

    def item(self, part):
        match kind_of(part):
            case "text":
                said = {"type": "output_text", "text": part, "annotations": []}
                own = {"id": f"msg_{self.count}", "role": "assistant", "status": "completed"}
                return {"type": "message", "content": [said], **own}
            case "thought":
                said = [{"type": "summary_text", "text": part[0]}]
                return {"type": "reasoning", "id": f"rs_{self.count}", "summary": said}
        name, given, call_id = part
        own = {"id": f"fc_{call_id}", "call_id": call_id, "status": "completed"}
        return {"type": "function_call", "name": name, "arguments": json.dumps(given), **own}


def model(*turns):
    client = AsyncOpenAI(
        api_key="none",
        base_url="http://model.invalid/v1",
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=Responses(*turns)),
    )
    return OpenAIResponsesModel("scripted", client)


def support(*turns):
    kit = Tools()
    tools = [function_tool(function) for function in kit.all()]
    agent = Agent(name="support", model=model(*turns), tools=tools)
    agent.kit = kit
    return agent


def with_expert(turns, experts):
    expert = Agent(name="expert", model=model(*experts))
    tool = expert.as_tool("expert", "Ask the expert.")
    return Agent(name="desk", model=model(*turns), tools=[tool])


async def ask(agent, *texts):
    session = SQLiteSession("a-conversation")
    for text in texts:
        await Runner.run(agent, text, session=session)


async def stream(agent, text, *, leave=False):
    result = Runner.run_streamed(agent, text)
    async for _ in result.stream_events():
        if leave:
            result.cancel()
            break
    if leave:
        async for _ in result.stream_events():
            pass
