#!/usr/bin/env python3
"""Runs the commands that the documentation shows and compares what they print.

In a ```console block each line `$ command` (continued by a trailing backslash)
is run by bash and the lines up to the next `$` are what it must print, standard
output and error together; `...` stands for anything. The commands of one page
share an empty folder that has `examples` in it. Without pages: the README and all of
docs.

  console.py SOURCE_DIR BIN_DIR [PAGE...]
"""

import doctest
import glob
import os
import re
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^```console\n(.*?)^```", re.M | re.S)


def commands(page):
    """Yields (line number, command, expected output) of a page."""
    for block in BLOCK.finditer(page):
        line = page.count("\n", 0, block.start(1)) + 1
        command, expected, start = None, [], line
        continued = False
        for number, text in enumerate(block.group(1).splitlines(), line):
            if continued:
                command += "\n" + text
            elif text.startswith("$ "):
                if command is not None:
                    yield start, command, expected
                command, expected, start = text[2:], [], number
            elif command is not None:
                expected.append(text)
            else:
                raise SystemExit(f"line {number}: output before a command")
            continued = (continued or text.startswith("$ ")) and text.endswith("\\")
        if command is not None:
            yield start, command, expected


def main():
    source, binaries, *pages = sys.argv[1:]
    if not pages:
        pages = ["README.md"] + sorted(
            os.path.relpath(page, source) for page in
            glob.glob(os.path.join(glob.escape(source), "docs", "**", "*.md"), recursive=True))
    checker = doctest.OutputChecker()
    environment = dict(os.environ, PATH=binaries + os.pathsep + os.environ["PATH"])
    failures = count = 0
    for page in pages:
        text = open(os.path.join(source, page), encoding="utf-8").read()
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(os.path.join(source, "examples"), os.path.join(folder, "examples"))
            for line, command, expected in commands(text):
                count += 1
                run = subprocess.run(
                    ["bash", "-o", "pipefail", "-c", command], cwd=folder, env=environment,
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT, text=True, timeout=300)
                got = "".join(l.rstrip() + "\n" for l in run.stdout.splitlines())
                want = "".join(l.rstrip() + "\n" for l in expected)
                if not checker.check_output(want, got, doctest.ELLIPSIS):
                    failures += 1
                    print(f"{page}:{line}: `{command}` printed\n{got}instead of\n{want}")
    if count == 0:
        raise SystemExit("no command found: the test would say nothing")
    print(f"{count} commands, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
