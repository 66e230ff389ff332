"""Follows KV events as a router does: what comes live, and what was missed from the replay socket.

    subscriber.py ENDPOINT REPLAY_ENDPOINT TOPIC

For each line on standard input, prints what the prefix cache holds by the events so far, as JSON.
"""
import json
import struct
import sys

import msgpack
import zmq

END = -1
PATIENCE_MS = 20_000


def replay(context, endpoint, first):
    """The messages from number `first` on that are still kept."""
    socket = context.socket(zmq.DEALER)
    socket.connect(endpoint)
    socket.send_multipart([b"", struct.pack(">Q", first)])
    messages = {}
    while socket.poll(PATIENCE_MS):
        delimiter, number, payload = socket.recv_multipart()
        number = struct.unpack(">q", number)[0]
        if number == END:
            assert (delimiter, payload) == (b"", b"")
            socket.close(0)
            return messages
        messages[number] = payload
    raise TimeoutError("the replay did not end")


def apply(state, payload):
    timestamp, events, rank = msgpack.unpackb(payload)
    assert timestamp > 1.5e9 and rank == 0
    for name, *fields in events:
        if name == "BlockStored":
            hashes, parent, tokens, size, lora_id, medium, lora_name, extra, group, kind, window = fields
            assert len(tokens) == len(hashes) * size and len(extra) == len(hashes)
            assert (lora_id, medium, lora_name) == (None, "GPU", None)
            assert (kind, window) in [("full_attention", None), ("sliding_window", 6)], (kind, window)
            assert (kind == "sliding_window") == (group == 1)
            for place, block in enumerate(hashes):
                state[(group, block)] = dict(
                    parent=parent if place == 0 else hashes[place - 1],
                    tokens=tokens[place * size : (place + 1) * size],
                    extra=extra[place],
                )
        elif name == "BlockRemoved":
            hashes, medium, group = fields
            for block in hashes:
                del state[(group, block)]
        else:
            assert (name, fields) == ("AllBlocksCleared", []), name
            state.clear()


def main():
    endpoint, replay_endpoint, topic = sys.argv[1:]
    context = zmq.Context()
    live = context.socket(zmq.SUB)
    live.connect(endpoint)
    live.setsockopt(zmq.SUBSCRIBE, topic.encode())
    messages, num_live, num_applied, state = {}, 0, 0, {}
    for _ in sys.stdin:
        while live.poll(0):
            frames = live.recv_multipart()
            assert len(frames) == 3 and frames[0] == topic.encode()
            number = struct.unpack(">Q", frames[1])[0]
            # What was replayed before it came live is the same message.
            assert messages.setdefault(number, frames[2]) == frames[2]
            num_live += 1
        if num_applied not in messages:
            messages.update(replay(context, replay_endpoint, num_applied))
        while num_applied in messages:
            apply(state, messages[num_applied])
            num_applied += 1
        blocks = [dict(group=group, hash=block, **about) for (group, block), about in sorted(state.items())]
        print(json.dumps(dict(num_live=num_live, num_applied=num_applied, blocks=blocks)), flush=True)


main()
