"""The contest: tutti and its peers, the same collectives in one interleaved run, as ratios.

    contest.py BUILD [--quick] [--only CHAPTER,...] [--rounds N] [--without LIBRARY,...]

Each chapter is played `rounds` times; in a round one library follows the other, so that what the machine does
meanwhile meets them all. The median over rounds counts. Writes BUILD/bench/contest.json, .txt and .svg, and
prints the table. Values are checked in every cell before it is timed.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import libraries
import plot
import table

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(os.path.dirname(HERE), "data")
STAGE_BYTES = 1 << 16

KIB, MIB = 1 << 10, 1 << 20
SIZES = [4, 64, KIB, 16 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]
QUICK_SIZES = [4, 16 * KIB, 256 * KIB, MIB, 16 * MIB]


class Chapter:
    """Some cells that belong together: one table."""

    def __init__(self, name, what, ranks, verb=None, sizes=None, batch=None, skew=0, hogs=0, first=False):
        self.name, self.what, self.ranks = name, what, ranks
        self.verb, self.sizes, self.batch = verb, sizes, batch
        self.skew, self.hogs, self.first = skew, hogs, first

    @property
    def has_floor(self):
        return self.name == "all_reduce"

    def arguments(self):
        what = ["--batch", os.path.join(DATA, self.batch + ".tsv")] if self.batch else \
            ["--verb", self.verb, "--sizes", ",".join(str(s) for s in self.sizes)]
        return what + (["--skew", str(self.skew)] if self.skew else [])

    def suits(self, library):
        """A shared result has no in-place form, nor is it one of a batch here."""
        return not getattr(library, "shared", False) or self.first or self.verb == "all_reduce"


def chapters(quick):
    ranks = [2, 4] if quick else [2, 4, 8]
    sizes = QUICK_SIZES if quick else SIZES
    small = [4] if quick else [4, 16 * KIB]
    list_ = [Chapter("all_reduce", "all-reduce, out of place", ranks, "all_reduce", sizes)]
    if not quick:
        list_ += [Chapter("all_reduce_in_place", "all-reduce, in place", ranks, "all_reduce_in_place", sizes),
                  Chapter("reduce", "reduce to rank 0", ranks, "reduce", sizes),
                  Chapter("broadcast", "broadcast from rank 0", ranks, "broadcast", sizes)]
    list_ += [Chapter("skew", "all-reduce, arriving 0 to 200 us apart", ranks, "all_reduce", small, skew=200)]
    if not quick:
        list_ += [Chapter("hog", "all-reduce beside a process that uses up core 0", [2, 4], "all_reduce", small, hogs=1),
                  Chapter("hogs", "all-reduce beside processes that use up all cores", [2, 4], "all_reduce", small,
                          hogs=os.cpu_count())]
    list_ += [Chapter("first", "from exec to the first result", ranks, first=True)]
    batches = ["small300"] if quick else ["small300", "resnet50", "bert_base", "gpt2"]
    list_ += [Chapter(b, f"batch all-reduce in place: {b}", ranks if b != "gpt2" else [2], batch=b) for b in batches]
    return list_


class Contest:
    def __init__(self, build, players, rounds, target):
        self.build, self.players, self.rounds, self.target = build, players, rounds, target
        self.missing = []
        self.cells, self.floors, self.wakes = [], [], []

    def files(self):
        """A stage of zeros and an empty file of results."""
        stage, out = tempfile.NamedTemporaryFile(prefix="stage-"), tempfile.NamedTemporaryFile("r", prefix="cells-")
        stage.truncate(STAGE_BYTES)
        return stage, out

    def play(self, chapter, ranks, player):
        stage, out = self.files()
        with stage, out:
            player.run(ranks, ["--stage", stage.name, "--out", out.name, "--target", str(self.target),
                               *chapter.arguments()])
            for line in out:
                self.cells.append(dict(json.loads(line), chapter=chapter.name, library=player.name))

    def play_first(self, chapter, ranks, player):
        with tempfile.NamedTemporaryFile("r", prefix="first-") as out:
            begun = time.monotonic_ns()
            player.run(ranks, ["--first", out.name])
            last = max(int(line) for line in out)
        self.cells.append({"chapter": chapter.name, "library": player.name, "ranks": ranks, "verb": "first", "bytes": 4,
                           "each": [(last - begun) / 1e3], "cpu": [0], "p50": (last - begun) / 1e3, "memory": 0})

    def play_chapter(self, chapter):
        for ranks in chapter.ranks:
            for _ in range(self.rounds * (5 if chapter.first else 1)):
                for player in self.players:
                    if not chapter.suits(player):
                        continue
                    try:
                        with libraries.Hogs(chapter.hogs):
                            (self.play_first if chapter.first else self.play)(chapter, ranks, player)
                    except libraries.Gone as e:
                        self.missing.append(f"{chapter.name}, {ranks} ranks: {e}")
                if chapter.has_floor:
                    self.measure_floor(ranks, chapter.sizes)

    def run_floor(self, program, ranks, *arguments):
        command = [os.path.join(self.build, "tests/bench/contest", program), "--ranks", str(ranks), *arguments]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return [json.loads(line) for line in lines.splitlines()]

    def measure_floor(self, ranks, sizes):
        sizes = ",".join(str(s) for s in sizes)
        self.floors += self.run_floor("contest-floor", ranks, "--sizes", sizes, "--target", str(self.target / 8))
        self.wakes += self.run_floor("contest-wakes", ranks, "--target", str(self.target))


def median_floor(lines, fields, keys):
    """One line for each combination of the keys."""
    groups = {}
    for line in lines:
        groups.setdefault(tuple(line[k] for k in keys), []).append(line)
    return [dict(zip(keys, key), **{f: statistics.median(line[f] for line in same) for f in fields})
            for key, same in groups.items()]


def median_cells(cells):
    """One cell for each (chapter, ranks, verb, bytes, library): medians over all rounds."""
    groups = {}
    for c in cells:
        groups.setdefault((c["chapter"], c["ranks"], c["verb"], c["bytes"], c["library"]), []).append(c)
    out = []
    for (chapter, ranks, verb, n_bytes, library), same in groups.items():
        cell = {"chapter": chapter, "ranks": ranks, "verb": verb, "bytes": n_bytes, "library": library, "n": len(same)}
        for field in ("p50", "p99", "p999", "memory"):
            values = [c[field] for c in same if field in c]
            if values:
                cell[field] = statistics.median(values)
        for field in ("each", "cpu"):
            cell[field] = statistics.median(v for c in same for v in c[field])
        out.append(cell)
    return out


def find_players(build, daemon, without):
    players, missing = [libraries.Tutti(build, daemon), libraries.Tutti(build, daemon, shared=True)], []
    for make in (libraries.open_mpi, libraries.mpich, libraries.Gloo):
        try:
            player = make(os.path.join(build, "bench"))
            if player.name not in without:
                players.append(player)
        except libraries.Gone as e:
            missing.append(str(e))
    return players, missing


def machine():
    model = ""
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
    return {"date": time.strftime("%Y-%m-%d", time.gmtime()), "kernel": platform.release(), "cores": os.cpu_count(),
            "cpu": model, "load": os.getloadavg()[0]}


def take_arguments():
    parser = argparse.ArgumentParser(prog="./dev bench --contest", description="tutti and its peers, as ratios")
    parser.add_argument("build")
    parser.add_argument("--quick", action="store_true", help="under two minutes: fewer sizes, 2 and 4 ranks")
    parser.add_argument("--only", default="", help="chapters, with commas")
    parser.add_argument("--without", default="", help="libraries, with commas: MPICH,Gloo")
    parser.add_argument("--rounds", type=int, default=0, help="2 with --quick, else 5")
    return parser.parse_args()


def main():
    args = take_arguments()
    out = os.path.join(args.build, "bench")
    os.makedirs(out, exist_ok=True)
    # MPICH takes minutes where ranks share cores, and Gloo's figures are far from all others: not when time is short.
    without = args.without.split(",") + (["MPICH", "Gloo"] if args.quick else [])
    daemon = libraries.Daemon(args.build)
    try:
        players, missing = find_players(args.build, daemon, without)
        contest = Contest(args.build, players, args.rounds or (2 if args.quick else 5), 0.03 if args.quick else 0.15)
        contest.missing += missing
        played = [c for c in chapters(args.quick) if not args.only or c.name in args.only.split(",")]
        for chapter in played:
            print(f"{chapter.what} ...", file=sys.stderr, flush=True)
            contest.play_chapter(chapter)
    finally:
        daemon.close()
    result = {"machine": machine(), "quick": args.quick, "cells": median_cells(contest.cells),
              "floor": median_floor(contest.floors, ("one_output", "own_outputs"), ("ranks", "bytes")),
              "wakes": median_floor(contest.wakes, ("yielding", "sleeping"), ("ranks",)), "missing": contest.missing}
    with open(os.path.join(out, "contest.json"), "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
    text = table.render(result, played)
    with open(os.path.join(out, "contest.txt"), "w", encoding="utf-8") as f:
        f.write(text)
    with open(os.path.join(out, "contest.svg"), "w", encoding="utf-8") as f:
        f.write(plot.render(result))
    print(text)
    print(f"{out}/contest.json, .txt, .svg")
    return 0 if result["cells"] else 1


if __name__ == "__main__":
    sys.exit(main())
