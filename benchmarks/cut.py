"""Cut a plant table down to every n-th engine, for tests: `python benchmarks/cut.py FROM.csv.gz TO.csv.gz --every 4`.

The same table gives the same bytes. Columns that the benchmark does not read are left out.
"""

import argparse
import csv
import gzip
import io
from pathlib import Path

from frontier_tuner.bench.tables import COLUMNS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("to", type=Path)
    parser.add_argument("--every", type=int, default=4, help="Keep one engine of so many.")
    options = parser.parse_args()
    with gzip.open(options.source, "rt", newline="") as stream:
        rows = list(csv.DictReader(stream))
    engines = list(dict.fromkeys(row["engine_id"] for row in rows))
    kept = {*engines[:: options.every]}
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(row for row in rows if row["engine_id"] in kept)
    # Without a time of its own in its header, the same table gives the same bytes.
    options.to.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
    print(f"{options.to}: {len(kept)} of {len(engines)} engines")


if __name__ == "__main__":
    main()
