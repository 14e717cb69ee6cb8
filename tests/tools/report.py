#!/usr/bin/env python3
"""Reads meson's testlog.json and prints what failed, what was skipped and why, and how many single tests passed.

A program that crashed, ran out of time or stopped before its plan was done counts as one failure more.
"""
import json
import re
import sys

POINT = re.compile(r'(not )?ok\b\s*\d*\s*-?\s*([^#]*?)\s*(?:#\s*(SKIP\S*|TODO)\s*(.*))?$', re.IGNORECASE)
PLAN = re.compile(r'1\.\.(\d+)\s*(?:#\s*SKIP\S*\s*(.*))?$', re.IGNORECASE)
LINES_OF_STDERR = 60


class Tally:
    def __init__(self):
        self.n_passed = 0
        self.failed = []   # (name, lines)
        self.skipped = []  # (name, reason)

    def add_program(self, entry):
        name = entry['name'].split(' / ')[-1]
        lines = entry.get('stdout', '').splitlines()
        n_failed = len(self.failed)
        if any(PLAN.match(line) for line in lines):
            self.add_points(name, lines)
        elif entry['result'] == 'OK':
            self.n_passed += 1
        elif entry['result'] == 'SKIP':
            self.skipped.append((name, 'skipped'))
        if entry['result'] not in ('OK', 'SKIP', 'EXPECTEDFAIL') and len(self.failed) == n_failed:
            self.failed.append((name, [f'#   the program ended with {entry["result"]}, '
                                       f'exit status {entry.get("returncode")}']))
        if len(self.failed) > n_failed:
            self.failed[-1][1].extend('    ' + line for line in
                                      entry.get('stderr', '').splitlines()[-LINES_OF_STDERR:])

    def add_points(self, program, lines):
        n_planned = n_seen = 0
        detail = None
        for line in lines:
            plan, point = PLAN.match(line), POINT.match(line)
            if plan:
                n_planned = int(plan[1])
                if n_planned == 0:
                    self.skipped.append((program, plan[2] or 'no tests'))
            elif point:
                n_seen += 1
                detail = self.add_point(point)
            elif detail is not None and line.startswith('#'):
                detail.append(line)
        if n_seen != n_planned:
            self.failed.append((program, [f'#   stopped after {n_seen} of {n_planned} tests']))

    def add_point(self, point):
        """Returns where the lines that explain this point go, or None."""
        is_bad, name, directive, reason = point[1], point[2], (point[3] or '').upper(), point[4]
        if directive.startswith('SKIP'):
            self.skipped.append((name, reason))
        elif is_bad and directive != 'TODO':
            self.failed.append((name, []))
            return self.failed[-1][1]
        else:
            self.n_passed += 1
        return None

    def print(self):
        for name, reason in self.skipped:
            print(f'skipped: {name}: {reason}')
        for name, lines in self.failed:
            print(f'FAILED: {name}')
            for line in lines:
                print(line)
        skipped = f', {len(self.skipped)} skipped' if self.skipped else ''
        print(f'{self.n_passed} passed, {len(self.failed)} failed{skipped}')


def main():
    tally = Tally()
    with open(sys.argv[1], encoding='utf-8') as log:
        for line in log:
            if line.strip():
                tally.add_program(json.loads(line))
    tally.print()
    return 1 if tally.failed or tally.n_passed == 0 else 0


if __name__ == '__main__':
    sys.exit(main())
