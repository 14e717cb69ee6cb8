#!/usr/bin/env python3
"""Nothing of ours is linked to CUDA or NCCL, which are opened at run time: test-cuda-symbols.py PROGRAM..."""
import os
import re
import subprocess
import sys

FOREIGN = re.compile(r'(cu[A-Z]\w*|cuda[A-Z]\w*|p?nccl[A-Z]\w*)$')

print(f'1..{len(sys.argv) - 1}')
for number, program in enumerate(sys.argv[1:], 1):
    nm = subprocess.run(['nm', '-D', '--undefined-only', program], check=True, capture_output=True, text=True).stdout
    wanted = [line.split()[-1].split('@')[0] for line in nm.splitlines()]
    elf = subprocess.run(['readelf', '-d', program], check=True, capture_output=True, text=True).stdout
    needed = re.findall(r'NEEDED.*\[(.*)\]', elf)
    bad = [name for name in wanted if FOREIGN.match(name)] + [lib for lib in needed if re.match(r'lib(cuda|nccl)', lib)]
    for name in bad:
        print(f'# {name}')
    print('ok' if wanted and needed and not bad else 'not ok', number, '- cuda-symbols:', os.path.basename(program))
