"""Instructions of the hot path, piece by piece, counted by callgrind.

    micro.py TUTTI-MICRO RECORD [--check | --record]

--check is a test (TAP): each piece within 5 % of what RECORD says, which was counted with the compiler named
there; with another one nothing can be said, and the test is skipped. --record writes RECORD. Neither: prints
both, with the time of each piece beside it.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

FEW, MANY = 20, 120
TOLERANCE = 0.05


def instructions(program, piece, n):
    with tempfile.TemporaryDirectory() as directory:
        out = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={directory}/out", program, piece, str(n)],
            capture_output=True, text=True, check=False)
    found = re.search(r"Collected : (\d+)", out.stderr)
    if out.returncode != 0 or not found:
        raise RuntimeError(f"{piece}: {out.stderr.strip().splitlines()[-1]}")
    return int(found.group(1))


def count(program, piece):
    """Of one time, without what is around it."""
    return (instructions(program, piece, MANY) - instructions(program, piece, FEW)) / (MANY - FEW)


def seconds(program, piece):
    def run(n):
        return float(subprocess.run([program, piece, str(n)], capture_output=True, text=True, check=True).stdout)
    n = max(100, int(0.05 / run(100)))
    return min(run(n) for _ in range(5))


def pieces_of(program):
    return subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()


def settings():
    """What the counts depend on beside our sources."""
    return os.environ.get("TUTTI_COMPILER", "")


def check(program, record):
    if not settings() or record["compiler"] != settings():
        print(f"1..0 # SKIP counted with {record['compiler']}, and this is {settings() or 'not an optimised build'}")
        return 0
    if subprocess.run(["sh", "-c", "command -v valgrind"], capture_output=True, check=False).returncode != 0:
        print("1..0 # SKIP no valgrind here")
        return 0
    pieces = pieces_of(program)
    print(f"1..{len(pieces)}")
    for i, piece in enumerate(pieces):
        counted, recorded = count(program, piece), record["instructions"].get(piece, 0)
        is_near = recorded and abs(counted - recorded) <= TOLERANCE * recorded
        print(f"{'ok' if is_near else 'not ok'} {i + 1} - {piece} takes {counted:.0f} instructions, and {recorded:.0f} are "
              "recorded (./dev bench --micro --record, where that is meant)")
    return 0


def main():
    program, path = sys.argv[1:3]
    what = sys.argv[3] if len(sys.argv) > 3 else ""
    if what == "--check":
        with open(path, encoding="utf-8") as f:
            return check(program, json.load(f))
    counted = {}
    for piece in pieces_of(program):
        counted[piece] = count(program, piece)
        print(f"{piece:24} {counted[piece]:12.0f} instructions  {seconds(program, piece) * 1e9:12.0f} ns", flush=True)
    if what == "--record":
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"compiler": settings(), "instructions": counted}, f, indent=1)
            f.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
