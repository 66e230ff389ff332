#!/usr/bin/env python3
"""What the Dockerfiles name exists: sources, programs of the workspace, a compiler that is new enough, one user."""
import json
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[2]


def run(*command):
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout


def version(text):
    return tuple(int(part) for part in text.split("."))


metadata = json.loads(run("cargo", "metadata", "--no-deps", "--locked", "--format-version", "1"))
programs = {t["name"] for p in metadata["packages"] for t in p["targets"] if "bin" in t["kind"]}
needed = max(version(p["rust_version"]) for p in metadata["packages"])
members = [pathlib.Path(p["manifest_path"]).parent.relative_to(root) for p in metadata["packages"]]
ignored = [line.strip() for line in (root / ".dockerignore").read_text().splitlines() if line.strip()]
user = re.search(r"runAsUser: (\d+)", (root / "charts/regatta/templates/_helpers.tpl").read_text()).group(1)


def copies(arguments, lines_before):
    """Faults of one COPY or ADD."""
    words = [w for w in arguments.split() if not w.startswith("--")]
    if "--from=" in arguments:
        made = any(re.search(rf"\b(cp|mv)\b.* {re.escape(source)}(\s|$)", line) for source in words[:-1] for line in lines_before)
        return [] if made else [f"no step before makes {' '.join(words[:-1])}"]
    return [f"{source} is not in the repository" for source in words[:-1] if not (root / source).exists()]


def faults(dockerfile):
    text = re.sub(r"\\\n", " ", dockerfile.read_text())
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    stages, installed, users = set(), set(), []
    for number, line in enumerate(lines):
        instruction, arguments = line.split(None, 1)
        if instruction == "FROM":
            image, *alias = arguments.split(" AS ")
            stages.update(alias)
            rust = re.match(r"rust:([0-9.]+)", image)
            if rust and version(rust.group(1)) < needed:
                yield f"{image} is older than the workspace's rust-version"
        elif instruction in ("COPY", "ADD"):
            yield from copies(arguments, lines[:number])
            for stage in re.findall(r"--from=(\S+)", arguments):
                if stage not in stages:
                    yield f"there is no stage {stage}"
            installed.add(arguments.split()[-1])
        elif instruction == "RUN":
            named = re.findall(r"--bin[= ](\S+)", arguments)
            yield from (f"{name} is no program of the workspace" for name in named if name not in programs)
            for built in re.findall(r"target/release/(\S+)", arguments):
                if built not in named:
                    yield f"target/release/{built} is not built by that step"
        elif instruction == "USER":
            users.append(arguments.split(":")[0])
        elif instruction == "ENTRYPOINT":
            program = json.loads(arguments)[0]
            if program not in installed:
                yield f"the entrypoint {program} is not in the image"
    if users != [user]:
        yield f"it runs as {users}, the chart as {user}"


found = [f"{path}: {fault}" for path in run("git", "ls-files", "*Dockerfile").split() for fault in faults(root / path)]
for member in members:
    hidden = [name for name in ignored if name.strip("/") in member.parts]
    found += [f".dockerignore hides {member}, a member of the workspace" for _ in hidden]
if found:
    sys.exit("\n".join(found))
print(f"{len(run('git', 'ls-files', '*Dockerfile').split())} Dockerfiles name what exists")
