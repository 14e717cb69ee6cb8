#!/usr/bin/env python3
"""How long functions and files are. Fails where a function has more than 80 lines or a file more than 600 (of tests 700); the last
lines tell the spread (median 15 or less, p90 40 or less is what we aim at).

A function begins in the first column, has a "(" before its "{", and ends with the next "}" in the first column;
clang-format keeps it so. Its length is the number of lines from its first to its last, both included.
"""
import os
import re
import statistics
import sys

MAX_FUNCTION_LINES = 80
MAX_FILE_LINES = 600
MAX_TEST_LINES = 700  # tables of cases
NAME = re.compile(r'(?:START_TEST)?\(?\b(\w+)\s*[()]')


def functions(lines):
    """Yields (name, first line number, number of lines)."""
    head, start, name = '', 0, None
    for number, line in enumerate(lines, 1):
        if name:
            if line.startswith('}'):
                yield name, start, number - start + 1
                head, name = '', None
        elif line[:1].isalpha() or line[:1] == '_':
            head, start = line, number
        elif head:
            head += line
        if not name and head.endswith('{'):
            found = NAME.search(head)
            name = found[1] if found and '=' not in head else None
            head = head if name else ''
        elif not name and head.endswith(';'):
            head = ''


def sources(root):
    for side in ('proto', 'daemon', 'client', 'tests'):
        for folder, _, names in os.walk(os.path.join(root, side)):
            for name in sorted(names):
                if name.endswith(('.c', '.h', '.cu', '.cuh', '.cc')):
                    yield os.path.join(folder, name)


def check(root):
    """(violations as lines, the spread as lines)"""
    bad, sizes, longest_file = [], [], (0, '')
    for path in sources(root):
        with open(path, encoding='utf-8', errors='replace') as f:
            lines = f.read().splitlines()
        shown = os.path.relpath(path, root)
        longest_file = max(longest_file, (len(lines), shown))
        limit = MAX_TEST_LINES if shown.startswith('tests' + os.sep) else MAX_FILE_LINES
        if len(lines) > limit:
            bad.append(f'{shown}:1: {len(lines)} lines; a file has at most {limit}')
        for name, line, size in functions(lines):
            sizes.append((size, f'{name} ({shown}:{line})'))
            if size > MAX_FUNCTION_LINES:
                bad.append(f'{shown}:{line}: {name} has {size} lines; a function has at most {MAX_FUNCTION_LINES}')
    if not sizes:
        return bad, []
    sizes.sort()
    lengths = [size for size, _ in sizes]
    return bad, [f'{len(sizes)} functions: median {statistics.median_low(lengths)} lines, '
                 f'p90 {lengths[len(lengths) * 9 // 10]}, longest {sizes[-1][0]}: {sizes[-1][1]}',
                 f'longest file: {longest_file[1]}, {longest_file[0]} lines']


def main():
    bad, spread = check(sys.argv[1] if len(sys.argv) > 1 else '.')
    print('\n'.join(bad + spread))
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
