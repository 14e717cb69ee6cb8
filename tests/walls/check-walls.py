#!/usr/bin/env python3
"""The walls of the house: which room may include what. Prints each violation as "file:line: rule".

The rooms stand on floors, and a file includes only floors below its own; what is allowed between neighbours on one
floor is listed. docs/architecture.md tells why.
"""
import os
import re
import sys

FLOORS = {
    # the shared vocabulary
    'base': 10, 'model': 11, 'wire': 12,
    # the pure domain
    'isa': 19, 'slots': 19, 'fallbacks': 19, 'config': 20, 'viewer': 20, 'quota': 20, 'group': 20, 'resume': 20, 'rendezvous': 20, 'plan': 20, 'planner': 20, 'algorithms': 20,
    # machines
    'doorbell': 30, 'service': 30, 'listener': 30, 'loan': 30, 'session': 30, 'lane': 30, 'buffer': 30, 'result': 30, 'signals': 30, 'engine': 30,
    'worker': 30, 'confine': 30,
    'backend': 30, 'backends/host': 30, 'backends/cuda': 30,
    # the story
    'conductor': 40, 'recorder': 40, 'stats': 40,
    'daemon': 50, 'main': 50,
    # the other process: tuttid-gpu
    'gpu': 50,
}

# On one floor only these; everybody may read config.h.
NEIGHBOURS = {
    'quota': {'config'}, 'group': {'config', 'quota'}, 'resume': {'config', 'quota'}, 'rendezvous': {'config', 'group', 'quota', 'resume'},
    'planner': {'config', 'plan', 'algorithms'}, 'algorithms': {'config', 'plan'}, 'plan': {'config'},
    'listener': {'doorbell'}, 'session': {'doorbell', 'loan'}, 'lane': {'doorbell', 'loan', 'session', 'backend'},
    'engine': {'doorbell', 'backend'}, 'buffer': {'doorbell', 'backend'}, 'result': {'backend'}, 'signals': {'backend'},
    'worker': {'doorbell', 'backend', 'engine'},
    'backends/host': {'backend'}, 'backends/cuda': {'backend'},
    'conductor': {'recorder', 'stats'}, 'main': {'daemon'},
}

# Rooms of the daemon whose headers only these see: no room knows its right-hand neighbour.
SEEN_BY = {
    'rendezvous': {'rendezvous', 'conductor', 'recorder', 'stats', 'daemon'},
    'planner': {'planner', 'conductor', 'daemon'},
    'conductor': {'conductor', 'daemon'},
}

# One room must not see both: only the conductor tells the story (and daemon.c builds every part).
APART = [({'engine', 'rendezvous'}, {'conductor', 'daemon'})]

# System and library headers that only these places include (regular expressions on the path).
LIBRARIES = [
    (r'uv(/.*)?\.h', r'^(proto|daemon)/', r'^daemon/(listener|session|lane|engine|worker|daemon)\b'),
    (r'(pthread|threads)\.h', r'^(proto|daemon)/', r'^(daemon/(engine\b|lane\b|backends/)|proto/base/log\b)'),
    (r'cuda\w*\.h', r'^(proto|daemon)/', r'^daemon/backends/cuda/'),
    (r'nccl\.h', r'^(proto|daemon)/', r'^daemon/backends/cuda/nccl\b'),
    (r'cuda\w*\.h', r'^client/', r'^client/lib/cuda\.c$'),
    (r'(.*/)?tutti\.pb-c\.h', r'', r'^proto/wire/codec\b'),
    (r'protobuf-c/.*', r'', r'^proto/wire/codec\b'),
    (r'ini\.h', r'', r'^daemon/config-file\.c$'),
    (r'seccomp\.h', r'', r'^(daemon/confine-((gpu-)?seccomp\.c|filter\.[ch])$|tests/)'),
    (r'jansson\.h', r'', r'^(client/ctl/|tests/)'),
    (r'microhttpd\.h', r'', r'^client/exporter/'),
    (r'check\.h', r'', r'^tests/'),
]

# Pure rooms: no input or output, no clock.
PURE = re.compile(r'^(proto/model/|daemon/(quota|group|resume|rendezvous|plan|planner|slots|fallbacks)\b|daemon/algorithms/)')
IMPURE = re.compile(r'^(unistd|fcntl|poll|time|dirent|signal|sys/(?!types|param|cdefs).*)\.h$')

# Words that only these places may contain.
WORDS = [
    (r'\bclock_gettime\b', r'^(proto|daemon)/', r'^(proto/base/clock\b|daemon/confine-seccomp\.c$)', 'clock_gettime only in base/clock'),
    (r'\bclock_now_ns\b', r'^(proto|daemon)/', r'^(proto/base/(clock|log)\b|daemon/(daemon|engine|lane|gpu)\b|daemon/backends/cuda/)',
     'clock_now_ns is called only by daemon, engine, lane, gpu, the cuda backend and log; others get the time as an argument'),
]

INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*', re.DOTALL)


def room_of(path):
    """The room a file of proto/ or daemon/ belongs to; None for what is in no known room."""
    parts = path.split('/')
    if parts[0] == 'proto' and len(parts) == 3:
        return parts[1] if parts[1] in FLOORS else None
    if parts[0] != 'daemon':
        return None
    if parts[1] == 'algorithms':
        return 'algorithms'
    if parts[1] == 'backends':
        room = 'backend' if len(parts) == 3 else '/'.join(parts[1:3])
        return room if room in FLOORS else None
    stem = parts[1].rsplit('.', 1)[0]
    while stem and stem not in FLOORS:  # thing-part.c belongs to thing
        stem = stem.rpartition('-')[0]
    return stem or None


def resolve(path, name, files):
    """The file of the project that `name`, included by `path`, means; None for others."""
    for folder in (os.path.dirname(path), 'proto', 'daemon', 'client', 'client/include', 'client/lib', ''):
        candidate = os.path.normpath(os.path.join(folder, name))
        if candidate in files:
            return candidate
    return None


def rule_of_rooms(path, target):
    """The rule that `path` breaks by including `target`, a file of proto/ or daemon/; or None."""
    here, there = room_of(path), room_of(target)
    if there is None:
        return f'{target} stands in no room of the house'
    if here == there:
        return None
    if there in SEEN_BY and here not in SEEN_BY[there]:
        return f'{there} is seen only by {", ".join(sorted(SEEN_BY[there] - {there}))}'
    if FLOORS[there] < FLOORS[here] or there in NEIGHBOURS.get(here, ()):
        return None
    if FLOORS[there] // 10 == FLOORS[here] // 10:
        return f'{here} does not include its neighbour {there}'
    return f'{here} stands below {there}'


def rule_of_sides(path, target):
    """client and daemon never see each other; programs of the client use the public headers alone."""
    side = target.split('/')[0]
    if side == 'tests':
        return 'only tests include what is in tests/'
    if path.startswith('client/') and side == 'daemon':
        return 'client does not see daemon'
    if path.startswith('client/') and not path.startswith(('client/lib/', 'client/include/')):
        own = '/'.join(path.split('/')[:2]) + '/'
        if not target.startswith(('client/include/', own)):
            return 'programs of the client use tutti.h and admin.h alone'
    if path.startswith('client/include/') and not target.startswith('client/include/'):
        return 'public headers include public headers alone'
    if path.startswith(('proto/', 'daemon/')) and side == 'client':
        return f'{path.split("/")[0]} does not see client'
    if path.startswith('proto/') and side == 'daemon':
        return 'proto does not see daemon'
    return None


def rules_of_include(path, name, files):
    for header, where, allowed, in LIBRARIES:
        if re.fullmatch(header, name) and re.search(where, path) and not re.search(allowed, path):
            yield f'<{name}> is not for this place'
    if PURE.match(path) and IMPURE.match(name):
        yield f'<{name}>: a pure room has no input, output or clock'
    target = resolve(path, name, files)
    if target is None or path.startswith('tests/'):
        return
    rule = rule_of_sides(path, target)
    if rule is None and path.startswith(('proto/', 'daemon/')):
        rule = rule_of_rooms(path, target)
    if rule:
        yield f'"{name}": {rule}'


def check_file(root, path, files):
    with open(os.path.join(root, path), encoding='utf-8', errors='replace') as f:
        text = f.read()
    if path.startswith(('proto/', 'daemon/')) and room_of(path) is None:
        yield 1, 'this file stands in no room of the house'
        return
    seen = {}
    code = COMMENT.sub(lambda m: re.sub(r'[^\n]', ' ', m[0]), text)
    for number, line in enumerate(code.splitlines(), 1):
        include = INCLUDE.match(line)
        if include:
            for rule in rules_of_include(path, include[2], files):
                yield number, rule
            target = resolve(path, include[2], files)
            seen.setdefault(target and room_of(target), number)
        for word, where, allowed, rule in WORDS:
            if re.search(word, line) and re.search(where, path) and not re.search(allowed, path):
                yield number, rule
    if not path.startswith('daemon/'):
        return
    for rooms, allowed in APART:
        if rooms <= seen.keys() | {room_of(path)} and room_of(path) not in allowed:
            yield max(seen.get(r, 1) for r in rooms), f'only {", ".join(sorted(allowed))} see {" and ".join(sorted(rooms))}'


def source_files(root):
    for side in ('proto', 'daemon', 'client', 'tests'):
        for folder, _, names in os.walk(os.path.join(root, side)):
            for name in names:
                if name.endswith(('.c', '.h', '.cu', '.cuh', '.cc')):
                    yield os.path.relpath(os.path.join(folder, name), root)


def violations(root):
    """All violations under `root` as (path, line, rule), in order."""
    files = set(source_files(root))
    for path in sorted(files):
        for number, rule in check_file(root, path, files):
            yield path, number, rule


def main():
    found = list(violations(sys.argv[1] if len(sys.argv) > 1 else '.'))
    for path, number, rule in found:
        print(f'{path}:{number}: {rule}')
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
