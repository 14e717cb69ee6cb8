#!/usr/bin/env python3
"""screen.py < CAPTURE > picture.svg: draws what `tmux capture-pane -e -p` has written, for the docs.

    tmux new-session -d -s top -x 80 -y 24 'tuttictl top' ; sleep 3 ; tmux capture-pane -e -p -t top | docs/screen.py >docs/top.svg
"""
import re
import sys
from xml.sax.saxutils import escape

COLOURS = {31: '#ff6b68', 32: '#7fc77f', 33: '#e5c07b', 34: '#7aa6da', 35: '#c397d8', 36: '#70c0ba', 90: '#8a8a8a'}
COLUMNS, WIDTH, HEIGHT, MARGIN = 80, 8.4, 17, 12


def spans(line):
    """The pieces of a line with one look each: text, colour, whether bold, dim or reversed."""
    look = {'colour': '#d8d8d8', 'bold': False, 'dim': False, 'reverse': False}
    for piece in re.split(r'(\x1b\[[0-9;]*m)', line):
        if not piece.startswith('\x1b'):
            if piece:
                yield piece, dict(look)
            continue
        for code in (int(c or 0) for c in piece[2:-1].split(';')):
            if code == 0:
                look = {'colour': '#d8d8d8', 'bold': False, 'dim': False, 'reverse': False}
            elif code in COLOURS:
                look['colour'] = COLOURS[code]
            elif code == 39:
                look['colour'] = '#d8d8d8'
            look['bold'] = (look['bold'] or code == 1) and code != 22
            look['dim'] = (look['dim'] or code == 2) and code != 22
            look['reverse'] = (look['reverse'] or code == 7) and code != 27


def main():
    lines = sys.stdin.read().rstrip('\n').split('\n')
    width, height = COLUMNS * WIDTH + 2 * MARGIN, len(lines) * HEIGHT + 2 * MARGIN
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14">')
    print(f'<rect width="100%" height="100%" rx="6" fill="#1e1e1e"/>')
    for row, line in enumerate(lines):
        column, y = 0, MARGIN + row * HEIGHT + 13
        for text, look in spans(line):
            x, fill = MARGIN + column * WIDTH, look['colour']
            if look['reverse']:
                print(f'<rect x="{x:.1f}" y="{y - 13}" width="{len(text) * WIDTH:.1f}" height="{HEIGHT}" fill="{fill}"/>')
                fill = '#1e1e1e'
            style = (' font-weight="bold"' if look['bold'] else '') + (' opacity="0.6"' if look['dim'] else '')
            if text.strip():
                print(f'<text x="{x:.1f}" y="{y}" fill="{fill}" xml:space="preserve" textLength="{len(text) * WIDTH:.1f}"{style}>{escape(text)}</text>')
            column += len(text)
    print('</svg>')


if __name__ == '__main__':
    main()
