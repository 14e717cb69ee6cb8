"""Time over size for all libraries, log-log, one panel for each number of ranks, as SVG."""
import math

COLOURS = {"tutti": "#c0392b", "tutti, shared result": "#e67e22", "Open MPI": "#2c3e50", "MPICH": "#16a085",
           "Gloo": "#8e44ad", "floor": "#999999"}
WIDTH, HEIGHT, LEFT, TOP, GAP = 330, 300, 60, 40, 30


def escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;")


class Axes:
    """Of one panel: log scales from the decades that hold all points."""

    def __init__(self, left, xs, ys):
        self.left = left
        self.x0, self.x1 = math.log2(min(xs)), max(math.log2(max(xs)), math.log2(min(xs)) + 1)
        self.y0 = math.floor(math.log10(min(ys)))
        self.y1 = max(math.ceil(math.log10(max(ys))), self.y0 + 1)

    def x(self, value):
        return self.left + (math.log2(value) - self.x0) / (self.x1 - self.x0) * WIDTH

    def y(self, value):
        return TOP + HEIGHT - (math.log10(value) - self.y0) / (self.y1 - self.y0) * HEIGHT


def label_bytes(n):
    return f"{n >> 20}M" if n >= 1 << 20 else f"{n >> 10}K" if n >= 1 << 10 else str(n)


def grid(axes, sizes, title):
    out = [f'<rect x="{axes.left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#444"/>',
           f'<text x="{axes.left + WIDTH / 2}" y="{TOP - 12}" text-anchor="middle">{title}</text>']
    for power in range(axes.y0, axes.y1 + 1):
        y = axes.y(10 ** power)
        out.append(f'<line x1="{axes.left}" y1="{y:.1f}" x2="{axes.left + WIDTH}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{axes.left - 6}" y="{y + 4:.1f}" text-anchor="end">{10 ** power:g}</text>')
    for n in sizes:
        out.append(f'<text x="{axes.x(n):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{label_bytes(n)}</text>')
    return out


def line(axes, points, colour):
    path = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in sorted(points))
    dots = [f'<circle cx="{axes.x(x):.1f}" cy="{axes.y(y):.1f}" r="2.5" fill="{colour}"/>' for x, y in points]
    return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>', *dots]


def series_of(result, ranks):
    series = {}
    for c in result["cells"]:
        if c["chapter"] == "all_reduce" and c["ranks"] == ranks:
            series.setdefault(c["library"], []).append((c["bytes"], c["each"]))
    for f in result["floor"]:
        if f["ranks"] == ranks:
            series.setdefault("floor", []).append((f["bytes"], f["own_outputs"]))
    return series


def legend(names):
    out = []
    for i, name in enumerate(names):
        x = LEFT + i * 150
        out.append(f'<rect x="{x}" y="{TOP + HEIGHT + 34}" width="14" height="4" fill="{COLOURS.get(name, "#000")}"/>')
        out.append(f'<text x="{x + 20}" y="{TOP + HEIGHT + 40}">{escape(name)}</text>')
    return out


def render(result):
    all_ranks = sorted({c["ranks"] for c in result["cells"] if c["chapter"] == "all_reduce"})
    if not all_ranks:
        return '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>\n'
    body, names = [], []
    for i, ranks in enumerate(all_ranks):
        series = series_of(result, ranks)
        points = [p for line_ in series.values() for p in line_]
        axes = Axes(LEFT + i * (WIDTH + LEFT + GAP), [p[0] for p in points], [p[1] for p in points])
        body += grid(axes, sorted({p[0] for p in points}), f"{ranks} ranks: us each, back to back, over bytes")
        for name, line_ in series.items():
            body += line(axes, line_, COLOURS.get(name, "#000"))
            if name not in names:
                names.append(name)
    width = LEFT + len(all_ranks) * (WIDTH + LEFT + GAP)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{TOP + HEIGHT + 56}" '
            'font-family="sans-serif" font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n'
            + "\n".join(body + legend(names)) + "\n</svg>\n")
