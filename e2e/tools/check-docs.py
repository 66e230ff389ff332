#!/usr/bin/env python3
"""Every relative link in the Markdown files leads to a file, and the book's summary names every page once."""
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[2]
listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=root, capture_output=True, text=True, check=True)
faults = []
for name in listed.stdout.split():
    page = root / name
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target and not target.startswith("mailto:") and not (page.parent / target).exists():
            faults.append(f"{name}: the link to {target} leads nowhere")
summary = root / "docs/src/SUMMARY.md"
linked = re.findall(r"\]\(([^)]+)\)", summary.read_text())
pages = {str(p.relative_to(summary.parent)) for p in summary.parent.rglob("*.md")} - {"SUMMARY.md"}
faults += [f"docs/src/SUMMARY.md names {p} twice" for p in set(linked) if linked.count(p) > 1]
faults += [f"docs/src/SUMMARY.md does not name {p}" for p in sorted(pages - set(linked))]
if faults:
    sys.exit("\n".join(faults))
print(f"{len(listed.stdout.split())} pages, every link leads somewhere")
