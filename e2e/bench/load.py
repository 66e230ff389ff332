"""A streaming completion client that disturbs the server as little as it can: events are stored with their arrival
times and decoded after the run."""
import asyncio
import json
import statistics
import time
from urllib.parse import urlsplit


class Answer:
    """One request: when it started, when each token event came, and what the server said it used."""

    def __init__(self):
        self.start, self.arrivals, self.prompt_tokens, self.output_tokens = 0.0, [], None, None


async def _chunks(reader):
    """The body of a chunked response, piece by piece."""
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        yield (await reader.readexactly(size + 2))[:-2]


async def complete(base, model, prompt, max_tokens):
    """Streams one greedy completion that ignores end-of-sequence."""
    url = urlsplit(base)
    body = json.dumps({
        "model": model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True,
        "stream": True, "stream_options": {"include_usage": True},
    }).encode()
    head = (f"POST {url.path}/completions HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n").encode()
    answer, stored, pending = Answer(), [], b""
    answer.start = time.perf_counter()
    reader, writer = await asyncio.wait_for(asyncio.open_connection(url.hostname, url.port, limit=1 << 24), 10)
    try:
        writer.write(head + body)
        status = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 600)).split(b"\r\n")[0]
        async for chunk in _chunks(reader):
            now = time.perf_counter()
            *lines, pending = (pending + chunk).split(b"\n")
            stored += [(now, line[5:].strip()) for line in lines if line.startswith(b"data:")]
    finally:
        writer.close()
    if b" 200 " not in status + b" ":
        raise RuntimeError(f"{base} answered {status.decode()}: {pending[:300].decode(errors='replace')}")
    for when, raw in stored:
        if raw == b"[DONE]":
            continue
        event = json.loads(raw)
        if "error" in event:
            raise RuntimeError(f"{base} answered {event['error']}")
        if event.get("usage"):
            answer.prompt_tokens = event["usage"]["prompt_tokens"]
            answer.output_tokens = event["usage"]["completion_tokens"]
        if any(choice.get("text") for choice in event.get("choices") or []):
            answer.arrivals.append(when)
    return answer


async def at_once(base, model, prompts, max_tokens):
    """All prompts at the same time; answers in their order."""
    return await asyncio.gather(*(complete(base, model, prompt, max_tokens) for prompt in prompts))


def decode_rate(answer):
    """Tokens per second of one stream after its first token."""
    return (answer.output_tokens - 1) / (answer.arrivals[-1] - answer.arrivals[0])


def steady_decode_rate(answers):
    """Tokens per second of all streams while every one of them decodes. A server may send several tokens in an
    event: each event of a stream counts as that stream's mean."""
    begin, end = max(a.arrivals[0] for a in answers), min(a.arrivals[-1] for a in answers)
    if end <= begin:
        raise RuntimeError("the streams never decoded all at once: raise the number of output tokens")
    tokens = sum(sum(begin < t <= end for t in a.arrivals) * a.output_tokens / len(a.arrivals) for a in answers)
    return tokens / (end - begin)


def first_token_ms(answers):
    """Median time to the first token in milliseconds."""
    return 1000 * statistics.median(answer.arrivals[0] - answer.start for answer in answers)


def prefill_rate(answer):
    """Prompt tokens per second until the first token."""
    return answer.prompt_tokens / (answer.arrivals[0] - answer.start)
