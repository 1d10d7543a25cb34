"""How jobs arrive in a public trace: by the hour of the day, and how many at a time.

    .venv/bin/python benches/evaluation/arrivals.py cluster_throughput.csv

The file is `simulation/data/Venus/cluster_throughput.csv` of github.com/S-Lab-System-Group/Lucid at
commit 63685a3. It says how many GPU jobs were submitted in each ten minutes to Venus, a cluster of
Helios, from 1 April to 28 September 2020. Two licences are concerned:

- The trace that was counted is github.com/S-Lab-System-Group/HeliosData, commit 159f0ca, under
  CC BY 4.0 (its `LICENSE.txt`): Hu et al., "Characterization and Prediction of Deep Learning
  Workloads in Large-Scale GPU Datacenters", SC '21, doi.org/10.1145/3458817.3476223.
- The file of counts is part of Lucid, under the S-Lab License 1.0 (its `LICENSE.txt`, copyright
  2022 S-Lab): use and redistribution for non-commercial purposes, with that notice; for others
  its contributors are to be asked. Hu et al., "Lucid", ASPLOS '23.

No row of either is kept here. `venus.json` has sums and means that this program computes from the
file of counts.
"""

from __future__ import annotations

import csv
import json
import statistics
import sys
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

KEPT = Path(__file__).resolve().parent / "venus.json"
#: Rows of an hour.
TEN_MINUTES = 6


def figures(rows: list[dict[str, str]]) -> dict[str, Any]:
    """What is kept of the counts.

    The burst size is the variance over the mean of the six counts of an hour, over all hours. In a
    Poisson process of bursts of k jobs it is k. Rates that change from hour to hour and from day to
    day don't add to it.
    """
    hours: dict[str, list[int]] = defaultdict(list)
    of_day: dict[int, list[int]] = defaultdict(list)
    of_week: dict[bool, list[int]] = defaultdict(list)
    for row in rows:
        time, jobs = datetime.fromisoformat(row["time"]), int(row["submit_gpu_job"])
        hours[row["time"][:13]].append(jobs)
        of_day[time.hour].append(jobs)
        of_week[time.weekday() >= 5].append(jobs)
    whole = [counts for counts in hours.values() if len(counts) == TEN_MINUTES]
    num_jobs = sum(int(row["submit_gpu_job"]) for row in rows)
    num_gpus = sum(int(row["submit_gpu_num"]) for row in rows)
    variance = statistics.fmean(map(statistics.variance, whole))
    return {
        "source": "Helios, cluster Venus, GPU jobs, 1 April to 28 September 2020",
        "trace": "S-Lab-System-Group/HeliosData at 159f0ca (CC BY 4.0)",
        "computed_from": "cluster_throughput.csv of S-Lab-System-Group/Lucid at 63685a3 "
        "(S-Lab License 1.0: non-commercial)",
        "jobs": num_jobs,
        "jobs_a_day": round(24 * TEN_MINUTES * num_jobs / len(rows), 1),
        "gpus_a_job": round(num_gpus / num_jobs, 2),
        "weekend_over_weekday": round(
            statistics.fmean(of_week[True]) / statistics.fmean(of_week[False]), 2
        ),
        "burst_size": round(variance / statistics.fmean(map(statistics.fmean, whole)), 1),
        "jobs_by_hour": [
            round(TEN_MINUTES * statistics.fmean(of_day[hour]), 1) for hour in range(24)
        ],
    }


def main() -> None:
    """Writes the figures of the file."""
    with Path(sys.argv[1]).open() as file:
        found = figures(list(csv.DictReader(file)))
    text = json.dumps(found, indent=2)
    hours = json.dumps(found["jobs_by_hour"])
    KEPT.write_text(text[: text.index('"jobs_by_hour": ')] + f'"jobs_by_hour": {hours}\n}}\n')
    print(KEPT.read_text())


if __name__ == "__main__":
    main()
