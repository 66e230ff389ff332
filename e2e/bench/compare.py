#!/usr/bin/env python3
"""Measures regatta-engine and llama.cpp in alternating pairs and prints the medians and their ratio.

Both serve the same GGUF file with the same number of threads, on loopback, and stay up for the whole run; while one
is measured the other is idle. A machine's speed drifts, so only the ratio of medians is worth quoting.
"""
import argparse
import asyncio
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request

from load import at_once, decode_rate, first_token_ms, prefill_rate, steady_decode_rate

# Frequent words that are one token each, with the space before, in GPT-2 style vocabularies.
WORDS = ("time year people way day man thing woman life child world school state family student group country "
         "problem hand part place case week company system program question work government number night point home "
         "water room mother area money story fact month lot right study book eye job word business issue").split()


class Server:
    """A server process of ours or a peer's, ready when constructed, ended by `stop`."""

    def __init__(self, name, command, port, ready, log):
        self.name, self.base = name, f"http://127.0.0.1:{port}/v1"
        self.log = open(log, "w")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        deadline = time.monotonic() + 120
        while True:
            try:
                with opener.open(f"http://127.0.0.1:{port}{ready}", timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    sys.exit(f"{name} did not become ready; its log is {log}")
                time.sleep(0.1)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def prompt(rng, words):
    return " " + " ".join(rng.choice(WORDS) for _ in range(words))


def measure(base, figure, rng):
    """One figure of one server: tokens per second, or milliseconds for SHARED. Prompts are new each time, so that a prefix
    cache helps only where a beginning is shared."""
    if figure == SHARED:
        beginning = prompt(rng, 1000)
        asyncio.run(at_once(base, "m", [beginning + prompt(rng, 64)], 2))   # brings the beginning into the cache
        prompts = [beginning + prompt(rng, 64) for _ in range(8)]
        return first_token_ms(asyncio.run(at_once(base, "m", prompts, 32)))
    if figure == "decode, 1 stream":
        [answer] = asyncio.run(at_once(base, "m", [prompt(rng, 128)], 128))
        return decode_rate(answer)
    if figure == "decode, 16 streams":
        return steady_decode_rate(asyncio.run(at_once(base, "m", [prompt(rng, 128) for _ in range(16)], 128)))
    [answer] = asyncio.run(at_once(base, "m", [prompt(rng, 512)], 2))
    return prefill_rate(answer)


SHARED = "TTFT, shared prefix"
FIGURES = ("decode, 1 stream", "decode, 16 streams", "prefill, 512 tokens", SHARED)


def start_servers(args):
    """Ours, and llama.cpp three times: its pool is split between slots, so prefill and decode want other settings, and a
    beginning is shared within one pool only."""
    threads = str(args.threads)
    ports = [free_port() for _ in range(4)]
    ours = Server("regatta-engine", [args.engine, "serve", args.model, "--served-model-name", "m", "--host", "127.0.0.1",
                                     "--port", str(ports[0]), "--threads", threads, "--max-num-seqs", "32",
                                     "--max-model-len", "4096"],
                  ports[0], "/readyz", f"{args.out}/regatta-engine.log")
    llama = [args.llama_server, "-m", args.model, "-t", threads, "-tb", threads, "--host", "127.0.0.1"]
    many = Server("llama.cpp (32 slots)", [*llama, "-c", "16384", "-np", "32", "--no-kv-unified", "--port", str(ports[1])],
                  ports[1], "/health", f"{args.out}/llama-slots.log")
    one = Server("llama.cpp (1 slot)", [*llama, "-c", "4096", "-np", "1", "--port", str(ports[2])],
                 ports[2], "/health", f"{args.out}/llama-one.log")
    shared = Server("llama.cpp (8 slots, one pool)",
                    [*llama, "-c", "16384", "-np", "8", "--kv-unified", "--port", str(ports[3])],
                    ports[3], "/health", f"{args.out}/llama-pool.log")
    return ours, many, one, shared


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engine", required=True, help="regatta-engine")
    parser.add_argument("--llama-server", required=True)
    parser.add_argument("--model", required=True, help="GGUF file")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--only", default="", metavar="WORDS", help="only the figures whose name holds this")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--out", default=".bench", help="folder for logs and result.json")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    rng = random.Random(args.seed)
    servers = start_servers(args)
    ours, many, one, shared = servers
    peers = {"prefill, 512 tokens": one, SHARED: shared}
    peer = {figure: peers.get(figure, many) for figure in FIGURES}
    figures = [figure for figure in FIGURES if args.only in figure]
    rates = {figure: ([], []) for figure in figures}
    try:
        for pair in range(args.pairs + 1):   # the first warms up and is not counted
            for figure in figures:
                sides = [ours, peer[figure]]
                values = {s.name: measure(s.base, figure, rng) for s in (sides if pair % 2 else reversed(sides))}
                if pair:
                    for kept, side in zip(rates[figure], sides):
                        kept.append(values[side.name])
            print(f"\rpair {pair} of {args.pairs}", end="", file=sys.stderr, flush=True)
    finally:
        for server in servers:
            server.stop()
    report(args, rates)


def report(args, rates):
    print(f"\n\n{args.pairs} alternating pairs, {args.threads} threads, seed {args.seed}; medians of tokens per second, of "
          "milliseconds for TTFT\n")
    print(f"{'figure':22} {'ours':>10} {'llama.cpp':>10} {'ratio':>7}   ratio by pair")
    result = {}
    for figure, (ours, peer) in rates.items():
        a, b = statistics.median(ours), statistics.median(peer)
        # How many times better ours is: more tokens, or less time.
        better = (lambda x, y: y / x) if figure == SHARED else (lambda x, y: x / y)
        pairs = [better(x, y) for x, y in zip(ours, peer)]
        print(f"{figure:22} {a:10.1f} {b:10.1f} {better(a, b):7.2f}   {min(pairs):.2f} to {max(pairs):.2f}")
        result[figure] = {"ours": ours, "peer": peer, "ratio_of_medians": better(a, b)}
    if all(figure in rates for figure in FIGURES[:2]):
        single, batch = (statistics.median(rates[f][0]) for f in FIGURES[:2])
        print(f"\n16 streams over 1 stream, ours: {batch / single:.2f}")
    with open(f"{args.out}/result.json", "w") as file:
        json.dump({"threads": args.threads, "pairs": args.pairs, "figures": result}, file, indent=1)


main()
