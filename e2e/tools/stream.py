#!/usr/bin/env python3
"""Asks an OpenAI-compatible server one chat question and prints the answer as it comes.

    stream.py BASE_URL MODEL QUESTION
"""
import json
import sys
import time
import urllib.error
import urllib.request


def events(response):
    for line in response:
        if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
            yield json.loads(line[6:])


def main():
    base, model, question = sys.argv[1:4]
    body = {"model": model, "stream": True, "max_tokens": 96, "temperature": 0,
            "messages": [{"role": "user", "content": question}]}
    request = urllib.request.Request(base + "/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    start, pieces = time.monotonic(), 0
    try:
        with opener.open(request, timeout=60) as response:
            for event in events(response):
                if "error" in event:
                    sys.exit(f"\nthe server answered: {event['error'].get('message')}")
                for choice in event["choices"]:
                    text = choice["delta"].get("content") or ""
                    pieces += bool(text)
                    print(text, end="", flush=True)
    except urllib.error.HTTPError as error:
        sys.exit(f"{error.code}: {error.read().decode(errors='replace')[:500]}")
    except urllib.error.URLError as error:
        sys.exit(f"{base} cannot be reached: {error.reason}")
    print(f"\n[{pieces} pieces in {time.monotonic() - start:.1f} s]")
    if not pieces:
        sys.exit("the answer is empty")


main()
