"""The contest's result as text: a row for each cell, best peer / tutti as a ratio."""

OURS = ("tutti", "tutti, shared result")


def size(n):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= factor:
            return f"{n / factor:.0f} {unit}"
    return f"{n} B"


def us(value):
    return "-" if value is None else f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio(peer, ours):
    return "-" if not peer or not ours else f"{peer / ours:.2f}"


def rows_of(result, chapter):
    """(ranks, bytes) -> library -> cell."""
    rows = {}
    for cell in result["cells"]:
        if cell["chapter"] == chapter.name:
            rows.setdefault((cell["ranks"], cell["bytes"]), {})[cell["library"]] = cell
    return rows


def floor_of(result, ranks, n_bytes):
    for f in result["floor"]:
        if (f["ranks"], f["bytes"]) == (ranks, n_bytes):
            return f
    return {}


def render_table(header, lines):
    widths = [max(len(row[i]) for row in [header, *lines]) for i in range(len(header))]
    return ["  ".join(cell.rjust(w) for cell, w in zip(row, widths)) for row in [header, *lines]]


def render_chapter(result, chapter, field, title):
    rows = rows_of(result, chapter)
    names = []
    for cells in rows.values():
        names += [n for n in cells if n not in names]
    names.sort(key=lambda n: (n not in OURS, n))
    peers = [n for n in names if n not in OURS]
    ours = [n for n in names if n in OURS]
    has_floor = chapter.has_floor and field == "each"
    header = ["ranks", "size", *names, *(["floor, one", "floor, own"] if has_floor else []),
              *(f"best peer / {n}" for n in ours)]
    lines = []
    for (ranks, n_bytes), cells in sorted(rows.items()):
        scale = 1 / (1 << 20) if field == "memory" else 1
        value = {n: cells[n][field] * scale for n in names if n in cells and field in cells[n]}
        best = min((value[n] for n in peers if value.get(n)), default=None)
        floor = floor_of(result, ranks, n_bytes)
        lines.append([str(ranks), size(n_bytes), *(us(value.get(n)) for n in names),
                      *([us(floor.get("one_output")), us(floor.get("own_outputs"))] if has_floor else []),
                      *(ratio(best, value.get(n)) for n in ours)])
    return [f"{chapter.what}: {title}", *render_table(header, lines), ""]


def render_wakes(result):
    lines = [[str(w["ranks"]), us(w["yielding"]), us(w["sleeping"])] for w in result["wakes"]]
    return ["floor: us from all processes to one more and back to all, nothing done",
            *render_table(["ranks", "yielding", "sleeping"], lines), ""] if lines else []


def render(result, chapters):
    m = result["machine"]
    lines = [f"{m['date']}, {m['cores']} cores ({m['cpu']}), kernel {m['kernel']}, load {m['load']:.1f} at the end", ""]
    for chapter in chapters:
        if chapter.first:
            lines += render_chapter(result, chapter, "p50", "us, median")
            continue
        lines += render_chapter(result, chapter, "each", "us each, back to back, median")
        if chapter.has_floor:
            lines += render_wakes(result)
        lines += render_chapter(result, chapter, "p50", "us, last in to last out, median")
        lines += render_chapter(result, chapter, "p99", "us, last in to last out, p99")
        lines += render_chapter(result, chapter, "p999", "us, last in to last out, p99.9")
        lines += render_chapter(result, chapter, "cpu", "us of CPU each, all processes")
        lines += render_chapter(result, chapter, "memory", "MiB, all processes, shared pages once")
    for what in result["missing"]:
        lines.append(f"not measured: {what}")
    return "\n".join(lines) + "\n"
