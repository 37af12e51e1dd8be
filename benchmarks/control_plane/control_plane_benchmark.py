"""The coordinator's CPU time by the number of ranks, beside a server that only holds calls.

    bazel build //benchmarks/control_plane:load_generator //benchmarks/control_plane:core_benchmark
    python benchmarks/control_plane/control_plane_benchmark.py --sizes 256,512,1024 --plot growth.svg

For each size it runs the scenarios "save" and "idle" against cairn-coordinator and against the empty server, one after
the other. Then come the scenarios of one size (first save, load, restart, a small job beside it) at the largest size,
and the core alone. Each result is a line of --results; a second call with the same file measures only what is missing,
so a long series may be stopped. The table, the ratios and the exponents (the slopes of straight lines through the
logarithms) are printed at the end, and --plot draws CPU time per rank and save against ranks.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
from typing import Any

SERVERS = {"cairn-coordinator": "Cairn", "empty server": "empty server"}
COLORS = {"cairn-coordinator": "#1f5fa8", "empty server": "#b3541e"}
LARGEST = ("first-save", "load", "restart", "mixed")
NO_PEER = ("load", "restart")
CORE_RANKS = (1000, 8192, 100_000)

Result = dict[str, Any]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0], epilog="See the head of the file.")
    parser.add_argument("--sizes", default="256,512,1024,2048,4096,8192", help="ranks (default %(default)s)")
    parser.add_argument("--tensors", type=int, default=100, help="that each rank declares (default %(default)s)")
    parser.add_argument("--largest", default=",".join(LARGEST), help="scenarios of the largest size; may be empty")
    parser.add_argument("--core", default=",".join(map(str, CORE_RANKS)), help="sizes of the core alone; may be empty")
    parser.add_argument("--core-budget", type=int, default=60, help="seconds for a size (default %(default)s)")
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("control_plane.jsonl"))
    parser.add_argument("--plot", type=pathlib.Path, help="an SVG file")
    parser.add_argument("--only-report", action="store_true", help="measure nothing: report what --results has")
    parser.add_argument(
        "--programs",
        type=pathlib.Path,
        default=pathlib.Path(__file__).parents[2] / "bazel-bin/benchmarks/control_plane",
        help="where load_generator lies",
    )
    parser.add_argument("--generator-flag", action="append", default=[], metavar="FLAG", help="such as --patience=300")
    return parser.parse_args()


class Series:
    """What was measured, and what is measured now."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.results: list[Result] = []
        if options.results.exists():
            self.results = [json.loads(line) for line in options.results.read_text().splitlines()]

    def find(self, scenario: str, server: str | None, ranks: int) -> Result | None:
        wanted = (scenario, server, ranks, self.options.tensors if server is not None else None)
        for result in self.results:
            if tuple(result.get(name) for name in ("scenario", "server", "ranks", "tensors")) == wanted:
                return result
        return None

    def run(self, scenario: str, server: str | None, ranks: int) -> Result | None:
        known = self.find(scenario, server, ranks)
        if known is not None or self.options.only_report:
            return known
        if server is None:
            command = [self.options.programs / "core_benchmark", "--budget", self.options.core_budget]
        else:
            command = [self.options.programs / "load_generator", scenario, "--tensors", self.options.tensors]
            command += ["--empty-server"] if server == "empty server" else []
            command += self.options.generator_flag
        command += ["--ranks", ranks]
        made = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=True)
        result: Result = json.loads(made.stdout)
        # Others on the machine make CPU times longer too, by cold caches.
        result["load_average"] = round(os.getloadavg()[0], 1)
        with self.options.results.open("a") as file:
            file.write(json.dumps(result) + "\n")
        self.results.append(result)
        return result


def slope(points: list[tuple[float, float]]) -> float:
    """Of the straight line through the logarithms, by least squares."""
    logs = [(math.log(x), math.log(y)) for x, y in points]
    mean_x = sum(x for x, _ in logs) / len(logs)
    mean_y = sum(y for _, y in logs) / len(logs)
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs)


def growth(series: Series, sizes: list[int], scenario: str, name: str) -> dict[str, list[tuple[float, float]]]:
    """By server: the points (ranks, value) of the runs that committed."""
    points: dict[str, list[tuple[float, float]]] = {}
    for server in SERVERS:
        found = [series.find(scenario, server, ranks) for ranks in sizes]
        points[server] = [(r["ranks"], r[name]) for r in found if r is not None and r["committed"] and r.get(name)]
    return points


def draw(points: dict[str, list[tuple[float, float]]], title: str, unit: str) -> str:
    """An SVG of lines over logarithmic axes, with powers of two of ranks and of ten of the value."""
    width, height, left, right, top, bottom = 640, 400, 70, 150, 50, 50
    every = [point for line in points.values() for point in line]
    low_x, high_x = math.log2(min(x for x, _ in every)), math.log2(max(x for x, _ in every))
    low_y = math.floor(math.log10(min(y for _, y in every)))
    high_y = max(math.ceil(math.log10(max(y for _, y in every))), low_y + 1)

    def at_x(x: float) -> float:
        return left + (math.log2(x) - low_x) / max(high_x - low_x, 1e-9) * (width - left - right)

    def at_y(y: float) -> float:
        return height - bottom - (math.log10(y) - low_y) / (high_y - low_y) * (height - top - bottom)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"'
        ' font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{left}" y="24" font-size="15" fill="#222222">{title}</text>',
        f'<text x="{left}" y="41" fill="#666666">{unit}</text>',
    ]
    for power in range(low_y, high_y + 1):
        y = at_y(10.0**power)
        parts.append(f'<path d="M{left} {y:.1f}H{width - right}" stroke="#dddddd"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#444444">{10.0**power:g}</text>')
    for x_value in sorted({x for x, _ in every}):
        x = at_x(x_value)
        parts.append(f'<path d="M{x:.1f} {height - bottom}v5" stroke="#888888"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{height - bottom + 20}" text-anchor="middle" fill="#444444">{x_value:g}</text>'
        )
    parts.append(
        f'<text x="{(left + width - right) / 2}" y="{height - 10}" text-anchor="middle" fill="#444444">ranks</text>'
    )
    labels: list[float] = []
    for server, line in points.items():
        if not line:
            continue
        path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in line)
        color = COLORS[server]
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts.extend(f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="3.5" fill="{color}"/>' for x, y in line)
        label = at_y(line[-1][1]) + 4
        while any(abs(label - other) < 14 for other in labels):
            label += 14
        labels.append(label)
        parts.append(f'<text x="{at_x(line[-1][0]) + 10:.1f}" y="{label:.1f}" fill="{color}">{SERVERS[server]}</text>')
    return "\n".join([*parts, "</svg>", ""])


def report(series: Series, sizes: list[int]) -> None:
    tables = [
        ("save", "cpu_us_per_rank", "CPU for an unchanged save, µs a rank"),
        ("save", "begun_to_write_s", "last BEGUN to last order to write, s"),
        ("save", "written_to_outcome_s", "last WRITTEN to last outcome, s"),
        ("idle", "core_percent", "idle, % of a core"),
    ]
    for scenario, name, title in tables:
        points = growth(series, sizes, scenario, name)
        lines = {server: dict(line) for server, line in points.items()}
        print(f"\n{title}\n{'ranks':>8} {'Cairn':>12} {'empty':>12} {'ratio':>7}")
        for ranks in sizes:
            cairn, empty = (lines[server].get(ranks) for server in SERVERS)
            shown = [f"{value:12.4g}" if value is not None else f"{'-':>12}" for value in (cairn, empty)]
            ratio = f"{cairn / empty:7.2f}" if cairn and empty else f"{'-':>7}"
            print(f"{ranks:8} {shown[0]} {shown[1]} {ratio}")
        if name.endswith(("per_rank", "percent")):
            # CPU of all ranks: a cost that is the same for each has exponent 1.
            by_rank = 1 if name.endswith("per_rank") else 0
            for server, line in points.items():
                if len(line) > 1:
                    exponent = slope([(x, y * x**by_rank) for x, y in line])
                    print(f"  {SERVERS[server]}: CPU grows as ranks^{exponent:.2f}")
    for result in series.results:
        if result["scenario"] not in ("save", "idle"):
            print("\n" + ", ".join(f"{name} {value}" for name, value in result.items()))


def main() -> int:
    options = parse()
    series = Series(options)
    sizes = sorted(int(size) for size in options.sizes.split(","))
    for scenario in ("save", "idle"):
        servers = list(SERVERS)
        for ranks in sizes:
            for server in list(servers):
                result = series.run(scenario, server, ranks)
                if result is not None and not result["committed"]:
                    print(f"{SERVERS[server]} does not save {ranks} ranks: larger sizes are left out", file=sys.stderr)
                    servers.remove(server)
    for scenario in filter(None, options.largest.split(",")):
        for server in SERVERS if scenario not in NO_PEER else ["cairn-coordinator"]:
            series.run(scenario, server, sizes[-1])
    for ranks in filter(None, options.core.split(",")):
        series.run("core", None, int(ranks))
    report(series, sizes)
    if options.plot is not None:
        points = growth(series, sizes, "save", "cpu_us_per_rank")
        if not any(points.values()):
            print("error: nothing was measured that could be drawn", file=sys.stderr)
            return 1
        options.plot.write_text(
            draw(points, "An unchanged save", "CPU time of the server for each rank, microseconds")
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
