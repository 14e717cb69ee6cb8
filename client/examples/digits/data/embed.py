#!/usr/bin/env python3
"""embed.py digits.csv digits-data.c: the images as a C array of bytes, 65 to an image."""
import sys

source, target = sys.argv[1:]
with open(source, encoding="ascii") as f:
    rows = [[int(cell) for cell in line.split(",")] for line in f]
for number, row in enumerate(rows, 1):
    if len(row) != 65 or not all(0 <= p <= 16 for p in row[:64]) or not 0 <= row[64] <= 9:
        sys.exit(f"{source}:{number}: expected 64 pixels of 0..16 and a digit")
with open(target, "w", encoding="ascii") as f:
    f.write('#include "data.h"\n\n')
    f.write(f"const unsigned int digits_n_images = {len(rows)};\n")
    f.write("const unsigned char digits_images[][DIGITS_PIXELS + 1] = {\n")
    f.writelines("{%s},\n" % ",".join(map(str, row)) for row in rows)
    f.write("};\n")
