#!/usr/bin/env python3
"""What libtutti.so shows is what its headers declare, no more and no less: test-lib-symbols.py LIBRARY HEADER..."""
import re
import subprocess
import sys

library, headers = sys.argv[1], sys.argv[2:]
declared = set()
for header in headers:
    with open(header, encoding='utf-8') as f:
        declared |= set(re.findall(r'TUTTI_API\b[^;]*?\b(tutti_\w+)\(', f.read()))
lines = subprocess.run(['nm', '-D', '--defined-only', library], check=True, capture_output=True, text=True).stdout
shown = {line.split()[-1].split('@')[0] for line in lines.splitlines() if ' A ' not in line}

print('1..1')
for name in sorted(declared - shown):
    print(f'# declared, but not in the library (lib/tutti.map): {name}')
for name in sorted(shown - declared):
    print(f'# in the library, but not declared: {name}')
print('ok 1' if declared and declared == shown else 'not ok 1', '- lib-symbols')
