#!/usr/bin/env python3
"""The walls of the project stand (TAP), and each rule finds a violation that is planted in a small tree."""
import importlib
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
walls = importlib.import_module('check-walls')
lengths = importlib.import_module('check-lengths')

# A tree in which all is well.
GOOD = {
    'proto/base/fd.h': '#include <stdlib.h>\n',
    'proto/base/clock.h': '#include <time.h>\n',
    'proto/base/clock.c': '#include "base/clock.h"\nint now(void) { return clock_gettime(0, 0); }\n',
    'proto/base/log.c': '#include <pthread.h>\n#include "base/clock.h"\n',
    'proto/model/key.h': '#include "base/fd.h"\n',
    'proto/wire/message.h': '#include "model/key.h"\n',
    'proto/wire/codec-reply.c': '#include "tutti.pb-c.h"\n#include "wire/message.h"\n',
    'daemon/config.h': '#include "base/fd.h"\n',
    'daemon/config-file.c': '#include <ini.h>\n#include "config.h"\n',
    'daemon/quota.h': '#include "config.h"\n',
    'daemon/group.h': '#include "quota.h"\n',
    'daemon/rendezvous.h': '#include "group.h"\n#include "wire/message.h"\n',
    'daemon/rendezvous-expire.c': '#include "rendezvous.h"\n',
    'daemon/plan.h': '/* #include <uv.h> in a comment is no include */\n',
    'daemon/planner.h': '#include "algorithms/algorithm.h"\n',
    'daemon/algorithms/algorithm.h': '#include "plan.h"\n',
    'daemon/backends/backend.h': '#include "plan.h"\n',
    'daemon/backends/host/host.c': '#include <pthread.h>\n#include "backends/backend.h"\n',
    'daemon/engine.h': '#include <uv.h>\n#include "backends/backend.h"\n',
    'daemon/buffer.h': '#include "backends/backend.h"\n',
    'daemon/session.h': '#include <uv.h>\n#include "quota.h"\n',
    'daemon/recorder.h': '#include "rendezvous.h"\n',
    'daemon/conductor.c': '#include "engine.h"\n#include "planner.h"\n#include "recorder.h"\n#include "rendezvous.h"\n',
    'daemon/conductor.h': '#include "session.h"\n',
    'daemon/daemon.h': '#include "config.h"\n',
    'daemon/daemon.c': '#include "base/clock.h"\n#include "conductor.h"\n#include "engine.h"\n#include "rendezvous.h"\n',
    'daemon/main.c': '#include "daemon.h"\n',
    'client/include/tutti/tutti.h': '#include <stdint.h>\n',
    'client/lib/open.c': '#include <tutti/tutti.h>\n#include "wire/message.h"\n',
    'client/ctl/rows.h': '#include <tutti/tutti.h>\n',
    'client/ctl/main.c': '#include <jansson.h>\n#include "rows.h"\n',
    'tests/unit/test-engine.c': '#include <check.h>\n#include "engine.h"\n#include "rendezvous.h"\n',
}

# (file, its text, line of the violation, words of the rule)
PLANTED = [
    ('proto/base/fd.c', '\n#include "model/key.h"\n', 2, 'base does not include its neighbour model'),
    ('proto/model/key.c', '#include "wire/message.h"\n', 1, 'model does not include its neighbour wire'),
    ('proto/model/key.c', '#include <time.h>\n', 1, 'a pure room'),
    ('proto/wire/channel.c', '#include "config.h"\n', 1, 'proto does not see daemon'),
    ('proto/wire/channel.c', '#include "tutti.pb-c.h"\n', 1, 'not for this place'),
    ('proto/wire/channel.c', '#include <uv.h>\n', 1, 'not for this place'),
    ('daemon/quota.c', '#include "quota.h"\n#include "group.h"\n', 2, 'quota does not include its neighbour group'),
    ('daemon/quota.c', '#include "session.h"\n', 1, 'quota stands below session'),
    ('daemon/quota.c', '#include <ini.h>\n', 1, 'not for this place'),
    ('daemon/rendezvous.c', '#include "planner.h"\n', 1, 'planner is seen only by'),
    ('daemon/rendezvous.c', '#include <sys/socket.h>\n', 1, 'a pure room'),
    ('daemon/rendezvous.c', '#include <uv.h>\n', 1, 'not for this place'),
    ('daemon/rendezvous.c', 'x = 1;\nx = clock_now_ns();\n', 2, 'clock_now_ns is called only'),
    ('daemon/plan.c', '#include "algorithms/algorithm.h"\n', 1, 'plan does not include its neighbour algorithms'),
    ('daemon/algorithms/ring.c', '#include "planner.h"\n', 1, 'planner is seen only by'),
    ('daemon/session.c', '#include "rendezvous.h"\n', 1, 'rendezvous is seen only by'),
    ('daemon/session.c', '#include "backends/backend.h"\n', 1, 'session does not include its neighbour backend'),
    ('daemon/session.c', '#include "conductor.h"\n', 1, 'conductor is seen only by'),
    ('daemon/buffer.c', '#include <pthread.h>\n', 1, 'not for this place'),
    ('daemon/buffer.c', '#include "engine.h"\n', 1, 'buffer does not include its neighbour engine'),
    ('daemon/backends/host/run.c', '#include "engine.h"\n', 1, 'backends/host does not include its neighbour engine'),
    ('daemon/backends/host/run.c', '#include <cuda.h>\n', 1, 'not for this place'),
    ('daemon/backends/cuda/run.c', '#include <nccl.h>\n', 1, 'not for this place'),
    ('daemon/stats.c', '#include "rendezvous.h"\n#include "engine.h"\n', 2, 'only conductor, daemon see'),
    ('daemon/fallbacks.c', '#include <time.h>\n', 1, 'a pure room'),
    ('daemon/stats.c', 'clock_gettime(0, &t);\n', 1, 'clock_gettime only in base/clock'),
    ('daemon/conductor.c', '#include <tutti/tutti.h>\n', 1, 'daemon does not see client'),
    ('daemon/conductor.c', '#include "daemon.h"\n', 1, 'conductor stands below daemon'),
    ('daemon/utils.c', 'int x;\n', 1, 'stands in no room'),
    ('client/lib/open.c', '#include "session.h"\n', 1, 'client does not see daemon'),
    ('client/lib/open.c', '#include <cuda.h>\n', 1, 'not for this place'),
    ('client/lib/open.c', '#include <jansson.h>\n', 1, 'not for this place'),
    ('client/ctl/main.c', '#include "base/fd.h"\n', 1, 'programs of the client use tutti.h'),
    ('client/ctl/main.c', '#include "../lib/own.h"\n', 1, 'programs of the client use tutti.h'),
    ('client/include/tutti/admin.h', '#include "model/key.h"\n', 1, 'public headers include public headers alone'),
]
GOOD_FOR_PLANTED = {'client/lib/own.h': ''}


def make_tree(root, files):
    for path, text in files.items():
        os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
        with open(os.path.join(root, path), 'w', encoding='utf-8') as f:
            f.write(text)


def in_tree(files, check):
    """What `check` says of a tree made of `files`."""
    with tempfile.TemporaryDirectory() as root:
        make_tree(root, files)
        return check(root)


def wall_lines(root):
    return [f'{path}:{line}: {rule}' for path, line, rule in walls.violations(root)]


def walls_find(path, text, line, words):
    found = in_tree({**GOOD, **GOOD_FOR_PLANTED, path: text}, wall_lines)
    return len(found) == 1 and found[0].startswith(f'{path}:{line}: ') and words in found[0], found


def function_of(n_lines):
    return 'int f(void) {\n' + '        ;\n' * (n_lines - 2) + '}\n'


def lengths_find(text, words):
    bad, _ = in_tree({'daemon/plan.c': text}, lengths.check)
    return (len(bad) == 1 and words in bad[0]) if words else not bad, bad


def points():
    """Yields (name, whether it holds, lines that explain)."""
    root = sys.argv[1]
    found = wall_lines(root)
    yield 'the walls of the project stand', not found, found
    bad, spread = lengths.check(root)
    yield 'functions and files of the project keep their limits', not bad, bad + spread
    found = in_tree(GOOD, wall_lines)
    yield 'nothing is found where all is well', not found, found
    for path, text, line, words in PLANTED:
        yield f'finds in {path}: {words}', *walls_find(path, text, line, words)
    for text, words in ((function_of(80), ''), (function_of(81), 'plan.c:1: f has 81 lines'),
                        ('\n' * 600, ''), ('\n' * 601, '601 lines')):
        yield f'lengths: {words or "at the limit is well"}', *lengths_find(text, words)


def main():
    all_points = list(points())
    print(f'1..{len(all_points)}')
    for number, (name, passed, lines) in enumerate(all_points, 1):
        print(f'{"" if passed else "not "}ok {number} - walls: {name}')
        if not passed:
            print(''.join(f'#   {line}\n' for line in lines), end='')
    return 0 if all(passed for _, passed, _ in all_points) else 1


if __name__ == '__main__':
    sys.exit(main())
