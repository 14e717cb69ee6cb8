#!/usr/bin/env python3
"""The report counts single tests, and sees crashes, short runs and skips (TAP)."""
import json
import os
import subprocess
import sys
import tempfile

REPORT = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'report.py')


def program(stdout, result='OK', returncode=0, stderr=''):
    return {'name': 'tutti:unit / heap', 'stdout': stdout, 'result': result, 'returncode': returncode, 'stderr': stderr}


# (what, programs, last line, words of the lines before, exit code)
CASES = [
    ('single tests are counted', [program('1..2\nok 1 - heap: a\nok 2 - heap: b\n')], '2 passed, 0 failed', '', 0),
    ('programs add up', [program('1..1\nok 1 - a\n'), program('ok 1 - b\nok 2 - c\n1..2\n')], '3 passed, 0 failed', '', 0),
    ('a failed test is named with its lines',
     [program('1..2\nnot ok 1 - heap: a\n#   heap.c:7: 1 == 2\nok 2 - heap: b\n', 'ERROR', 1)],
     '1 passed, 1 failed', 'FAILED: heap: a\n#   heap.c:7: 1 == 2', 1),
    ('stderr is shown with a failure', [program('1..1\nnot ok 1 - a\n', 'ERROR', 1, 'AddressSanitizer: x\n')],
     '0 passed, 1 failed', 'AddressSanitizer: x', 1),
    ('a skipped test is named with its reason', [program('1..2\nok 1 - a\nok 2 - heap: b # SKIP no GPU here\n')],
     '1 passed, 0 failed, 1 skipped', 'skipped: heap: b: no GPU here', 0),
    ('a program that stops early has failed', [program('1..3\nok 1 - a\n', 'ERROR', -11)], '1 passed, 1 failed',
     'FAILED: heap\n#   stopped after 1 of 3 tests', 1),
    ('a program that crashes after its plan has failed', [program('1..1\nok 1 - a\n', 'ERROR', -11)], '1 passed, 1 failed',
     'ended with ERROR, exit status -11', 1),
    ('a program that prints nothing has failed', [program('', 'ERROR', 127)], '0 passed, 1 failed',
     'ended with ERROR, exit status 127', 1),
    ('a time-out is a failure', [program('1..2\nok 1 - a\nok 2 - b\n', 'TIMEOUT', -9)], '2 passed, 1 failed', 'TIMEOUT', 1),
    ('no test at all is a failure', [program('1..0 # SKIP no test of that name here\n', 'SKIP')],
     '0 passed, 0 failed, 1 skipped', 'skipped: heap: no test of that name here', 1),
]


def holds(programs, last, words, code):
    with tempfile.NamedTemporaryFile('w', suffix='.json', encoding='utf-8') as log:
        log.write(''.join(json.dumps(p) + '\n' for p in programs))
        log.flush()
        done = subprocess.run([sys.executable, REPORT, log.name], stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.rstrip('\n').split('\n')
    return done.returncode == code and lines[-1] == last and words in done.stdout, done.stdout


def main():
    n_bad = 0
    print(f'1..{len(CASES)}')
    for number, (what, programs, last, words, code) in enumerate(CASES, 1):
        passed, out = holds(programs, last, words, code)
        n_bad += not passed
        print(f'{"" if passed else "not "}ok {number} - report: {what}')
        if not passed:
            print(''.join(f'#   {line}\n' for line in out.splitlines()), end='')
    return 1 if n_bad else 0


if __name__ == '__main__':
    sys.exit(main())
