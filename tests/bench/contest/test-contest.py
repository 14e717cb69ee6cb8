#!/usr/bin/env python3
"""The contest: a whole small run through the real tuttid, and what table and plot make of figures."""
import os
import subprocess
import sys
import time
import xml.dom.minidom

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import contest  # noqa: E402
import libraries  # noqa: E402
import plot  # noqa: E402
import table  # noqa: E402

BUILD = sys.argv[1]


def cell(library, each, **more):
    return dict({"chapter": "all_reduce", "ranks": 2, "verb": "all_reduce", "bytes": 4096, "library": library, "each": each,
                 "cpu": each, "p50": each, "p99": each, "p999": each, "memory": 1 << 20}, **more)


RESULT = {"machine": {"date": "2026-01-02", "cores": 2, "cpu": "a processor", "kernel": "6.1", "load": 0.5},
          "cells": [cell("tutti", 2.0), cell("tutti, shared result", 1.0), cell("Open MPI", 8.0), cell("Gloo", 90.0)],
          "floor": [{"ranks": 2, "bytes": 4096, "one_output": 0.5, "own_outputs": 0.75}],
          "wakes": [{"ranks": 2, "yielding": 1.5, "sleeping": 42.0}], "missing": ["MPICH is not here"]}
CHAPTER = contest.Chapter("all_reduce", "all-reduce, out of place", [2], "all_reduce", [4096])


def a_run_is_timed_and_checked():
    """Two replicas, one size: a cell with all figures."""
    daemon = libraries.Daemon(BUILD)
    try:
        player = libraries.Tutti(BUILD, daemon)
        shared = libraries.Tutti(BUILD, daemon, shared=True)
        played = contest.Contest(BUILD, [player, shared], 1, 0.01)
        chapter = contest.Chapter("all_reduce", "", [2], "all_reduce", [4, 65536])
        played.play_chapter(chapter)
        played.play_first(chapter, 2, player)
    finally:
        daemon.close()
    cells = contest.median_cells(played.cells)
    of_all_reduce = [c for c in cells if c["verb"] == "all_reduce"]
    return (played.missing == [] and len(of_all_reduce) == 4 and len(cells) == 5 and all(
        c["each"] > 0 and c["cpu"] > 0 and c["p50"] <= c["p99"] <= c["p999"] and c["memory"] > 65536
        for c in of_all_reduce) and os.path.exists(daemon.directory) is False)


def every_verb_gives_right_values():
    """A wrong one ends the player with 3."""
    daemon = libraries.Daemon(BUILD)
    try:
        played = contest.Contest(BUILD, [libraries.Tutti(BUILD, daemon)], 1, 0.001)
        for verb in ("all_reduce_in_place", "reduce", "broadcast"):
            played.play_chapter(contest.Chapter(verb, "", [3], verb, [4, 4096]))
        played.play_chapter(contest.Chapter("small300", "", [2], batch="small300"))
    finally:
        daemon.close()
    return played.missing == [] and sorted(c["verb"] for c in played.cells) == sorted(
        ["all_reduce_in_place"] * 2 + ["reduce"] * 2 + ["broadcast"] * 2 + ["small300"])


def a_player_that_fails_is_named():
    class Broken(libraries.Library):
        name = "Broken"

        def start(self, ranks, arguments):
            return [subprocess.Popen(["sh", "-c", "exit 3"]), subprocess.Popen(["sleep", "100"])]

    played = contest.Contest(BUILD, [Broken()], 1, 0.01)
    played.play_chapter(CHAPTER)
    return played.cells == [] and played.missing == ["all_reduce, 2 ranks: Broken: a player ended with 3"]


def hogs_run_as_long_as_somebody_plays():
    """Each on the core it is to use up, during a run, and none after it."""
    def seen():
        cores = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as command, open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
                    if b"while :" in command.read() and int(stat.read().rsplit(")", 1)[1].split()[1]) == os.getpid():
                        cores += os.sched_getaffinity(int(pid))
            except (FileNotFoundError, ProcessLookupError):
                pass
        return cores

    class Watcher(libraries.Library):
        name = "Watcher"
        during = []

        def run(self, ranks, arguments):
            until = time.monotonic() + 5
            while len(seen()) < hogs and time.monotonic() < until:  # one that has just begun has no name yet
                time.sleep(0.01)
            self.during.append(seen())

    played = contest.Contest(BUILD, [Watcher()], 1, 0.01)
    for hogs in (0, 1, os.cpu_count()):
        played.play_chapter(contest.Chapter("hogs", "", [2], "all_reduce", [4], hogs=hogs))
    return [sorted(d) for d in Watcher.during] == [[], [0], list(range(os.cpu_count()))] and seen() == []


def rounds_become_medians():
    first, second = dict(cell("tutti", 5.0), each=[1.0, 2.0, 9.0], cpu=[1.0]), dict(cell("tutti", 7.0), each=[2.0, 3.0, 3.0], cpu=[3.0])
    cells = contest.median_cells([first, second])
    return len(cells) == 1 and (cells[0]["each"], cells[0]["cpu"], cells[0]["p50"], cells[0]["n"]) == (2.5, 2.0, 6.0, 2)


def ratios_are_to_the_best_peer():
    lines = table.render_chapter(RESULT, CHAPTER, "each", "us")
    return lines[1].split("  ")[-2].strip() == "best peer / tutti" and lines[2].split() == \
        ["2", "4", "KiB", "2.00", "1.00", "90.0", "8.00", "0.50", "0.75", "4.00", "8.00"]


def the_floor_is_measured_in_each_round():
    played = contest.Contest(BUILD, [], 2, 0.01)
    played.play_chapter(contest.Chapter("all_reduce", "", [2, 3], "all_reduce", [4, 65536]))
    sums = contest.median_floor(played.floors, ("one_output", "own_outputs"), ("ranks", "bytes"))
    wakes = contest.median_floor(played.wakes, ("yielding", "sleeping"), ("ranks",))
    text = table.render_wakes({"wakes": wakes})
    return (len(played.floors) == 8 and [(f["ranks"], f["bytes"]) for f in sums] == [(2, 4), (2, 65536), (3, 4), (3, 65536)]
            and all(0 < f["one_output"] and 0 < f["own_outputs"] for f in sums)
            and len(played.wakes) == 4 and [w["ranks"] for w in wakes] == [2, 3]
            and all(0 < w["yielding"] and 0 < w["sleeping"] for w in wakes) and len(text) == 5)


def what_was_not_measured_is_said():
    return "not measured: MPICH is not here\n" in table.render(RESULT, [CHAPTER])


def the_plot_is_svg_with_a_line_for_each():
    svg = xml.dom.minidom.parseString(plot.render(RESULT))
    return len(svg.getElementsByTagName("polyline")) == 5


def gradients_are_those_of_the_models():
    said = {"resnet50": (161, 25557032), "bert_base": (199, 109482240), "gpt2": (148, 124439808), "small300": (300, 307200)}
    for name, expected in said.items():
        counts = []
        with open(os.path.join(contest.DATA, name + ".tsv"), encoding="utf-8") as f:
            for row in f:
                if not row.startswith("#"):
                    n = 1
                    for dimension in row.split("\t")[2].split("x"):
                        n *= int(dimension)
                    counts.append(n)
        if (len(counts), sum(counts)) != expected:
            return False
    return True


TESTS = [a_run_is_timed_and_checked, every_verb_gives_right_values, a_player_that_fails_is_named,
         hogs_run_as_long_as_somebody_plays, rounds_become_medians,
         ratios_are_to_the_best_peer, the_floor_is_measured_in_each_round, what_was_not_measured_is_said, the_plot_is_svg_with_a_line_for_each,
         gradients_are_those_of_the_models]


def main():
    print(f"1..{len(TESTS)}")
    for i, test in enumerate(TESTS):
        try:
            result = test()
        except Exception as e:  # noqa: BLE001 # a test that breaks has failed
            result = False
            print(f"# {type(e).__name__}: {e}")
        print(f"{'ok' if result else 'not ok'} {i + 1} - contest: {test.__name__}")


if __name__ == "__main__":
    main()
