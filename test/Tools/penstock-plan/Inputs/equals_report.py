"""Compares a plan with the reports of the compiled schedules.

equals_report.py SPEC.mlir PLAN.json: every schedule of the plan that runs has
the figures that pipe-compile and --pipe-to-report give for it.
"""

import json
import subprocess
import sys


def main():
    spec, path = sys.argv[1:]
    plan = json.load(open(path))
    for row in plan["schedules"]:
        if row["makespan"] is None:
            continue
        compiled = subprocess.run(
            ["penstock-opt", spec, f"--pipe-compile=schedule={row['schedule']} verify=false"],
            check=True, stdout=subprocess.PIPE).stdout
        report = json.loads(subprocess.run(
            ["penstock-translate", "--pipe-to-report"], input=compiled,
            check=True, stdout=subprocess.PIPE).stdout)
        figures = report[plan["figures"]]
        ranks = figures["rank_details"]
        want = {key: figures[key] for key in ("makespan", "span", "bubble_rate")}
        want["stages"] = report["stages"]
        want["peak_activations"] = max(rank["peak_activations"] for rank in ranks)
        want["peak_bytes"] = max(rank["peak_bytes"] for rank in ranks)
        got = {key: row[key] for key in want}
        assert got == want, (row["schedule"], got, want)
        assert [sum(rank.values()) for rank in row["rank_memory"]] == [
            rank["peak_bytes"] for rank in ranks], row["schedule"]
        print(row["schedule"], "equal")


if __name__ == "__main__":
    main()
