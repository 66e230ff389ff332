#!/usr/bin/env python3
"""Uses the official openai client as an application would. Prints one line for each thing seen; any failure is a
non-zero exit.

    openai_client.py BASE_URL MODEL
"""
import sys

import openai
from openai import OpenAI

base_url, model = sys.argv[1:3]
client = OpenAI(base_url=base_url, api_key="none", timeout=60, max_retries=0)
question = [{"role": "user", "content": "Name the capital of France in one word."}]


def check(what, condition, seen):
    if not condition:
        sys.exit(f"{what}: unexpected {seen!r}")
    print("ok", what)


def models():
    names = [card.id for card in client.models.list()]
    check("model list", model in names, names)


def chat():
    answer = client.chat.completions.create(model=model, messages=question, max_tokens=12, temperature=0)
    choice = answer.choices[0]
    check("chat", choice.message.role == "assistant" and choice.message.content, answer)
    check("chat finish", choice.finish_reason in ("stop", "length"), choice.finish_reason)
    check("chat usage", answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens, answer.usage)
    return choice.message.content


def chat_stream(whole):
    text, finish, usage = "", None, None
    stream = client.chat.completions.create(model=model, messages=question, max_tokens=12, temperature=0, stream=True,
                                            stream_options={"include_usage": True})
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    check("streamed chat equals the whole one", text == whole, (text, whole))
    check("streamed chat finish", finish in ("stop", "length"), finish)
    check("streamed usage", usage and usage.completion_tokens > 0, usage)


def completion():
    answer = client.completions.create(model=model, prompt="The capital of France is", max_tokens=4, temperature=0,
                                       logprobs=3, n=1, seed=7)
    choice = answer.choices[0]
    check("completion", "Paris" in choice.text, answer)
    check("completion logprobs", len(choice.logprobs.tokens) == answer.usage.completion_tokens, choice.logprobs)


def completion_stream():
    text = "".join(chunk.choices[0].text for chunk in client.completions.create(
        model=model, prompt="The capital of France is", max_tokens=4, temperature=0, stream=True) if chunk.choices)
    check("streamed completion", "Paris" in text, text)


def errors():
    try:
        client.chat.completions.create(model="no-such-model", messages=question)
        sys.exit("an unknown model was answered")
    except openai.NotFoundError as error:
        check("unknown model", "no-such-model" in str(error), error)
    try:
        client.chat.completions.create(model=model, messages=question, temperature=-1)
        sys.exit("a negative temperature was answered")
    except openai.BadRequestError as error:
        check("bad request", "temperature" in str(error), error)


models()
chat_stream(chat())
completion()
completion_stream()
errors()
