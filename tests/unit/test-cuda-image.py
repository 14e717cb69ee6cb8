#!/usr/bin/env python3
"""The device code as it was built: every kernel is in it for every architecture, and no operation that rounds was
left to the compiler's fancy. Arguments: the C compiler with its include path, kernels.ptx, then the cubins."""
import re
import shlex
import subprocess
import sys

# What PTX may do to floats: arithmetic that says how it rounds. Without a rounding, an add and a mul may become one.
UNROUNDED = re.compile(r'\b(add|sub|mul|div|fma|mad)(\.\w+)*\.f(32|64)\b')
ROUNDED = re.compile(r'\b(add|sub|mul|div)\.rn\.f(32|64)\b')


LIST = """
#include "backends/cuda/kernels-list.h"
#define PAIR(name, ...) tutti_##name tutti_checked_##name
#define FOLD(name, ...) tutti_folded_##name
#define ROW(name, ...) tutti_joined_##name
#define ONE(name, ...) tutti_##name
CUDA_ELEMENT_KERNELS(PAIR) CUDA_REDUCTIONS(FOLD) CUDA_ROW_KERNELS(ROW) CUDA_COUNTING_KERNELS(ONE) CUDA_OTHER_KERNELS(ONE)
"""


def kernel_names(compiler):
    """The names of kernels-list.h, by the C preprocessor."""
    listing = subprocess.run(compiler + ['-E', '-P', '-'], input=LIST, check=True, capture_output=True, text=True).stdout
    return re.findall(r'\btutti_\w+', listing)


def entries(ptx):
    return set(re.findall(r'\.entry (\w+)\(', ptx))


def contractions(ptx):
    """Lines with float arithmetic that does not say how it rounds, or rounds once for two operations."""
    return [line.strip() for line in ptx.splitlines() if UNROUNDED.search(line) and not ROUNDED.search(line)]


def report(number, name, problems):
    print(f'{"not ok" if problems else "ok"} {number} - cuda-image: {name}')
    for problem in problems[:10]:
        print(f'#   {problem}')
    return bool(problems)


def main():
    compiler, ptx_path, *cubins = sys.argv[1:]
    with open(ptx_path) as f:
        ptx = f.read()
    names = kernel_names(shlex.split(compiler))
    missing = [n for n in names if n not in entries(ptx)]
    if len(names) < 200:
        missing.append(f'only {len(names)} names are known')
    failed = False
    print(f'1..{3 + len(cubins)}')
    failed |= report(1, 'every_kernel_is_in_the_PTX', missing)
    failed |= report(2, 'P11_no_sum_or_product_is_contracted', contractions(ptx))
    failed |= report(3, 'subnormals_are_kept', [line.strip() for line in ptx.splitlines() if '.ftz' in line])
    for number, path in enumerate(cubins, 4):
        with open(path, 'rb') as f:
            code = f.read()
        failed |= report(number, f'every_kernel_is_in_{path.split(".")[-2]}',
                         [n for n in names if b'.text.' + n.encode() + b'\0' not in code])
    return failed


if __name__ == '__main__':
    sys.exit(main())
