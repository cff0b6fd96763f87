"""A table of one's own, made into a task folder that an agent can be trained on.

As it stands it takes penguins.csv, which lies beside it; with other arguments any table with a column to predict:

    python examples/your_own_task/make_task.py --out penguins
    python examples/your_own_task/make_task.py --csv houses.csv --target price --metric rmsle --out houses
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd

REGRESSION = ("rmse", "mae", "rmsle", "r2")


@dataclass(frozen=True)
class Args:
    """What can be set on the command line."""

    csv: str = str(Path(__file__).with_name("penguins.csv"))
    """Table with one example a row."""
    target: str = "body_mass_g"
    """Column to predict: numbers, or 0 and 1 for auc."""
    metric: str = "rmse"
    """How predictions are scored: rmse, mae, rmsle, r2, or auc."""
    about: str = "Predict the body mass in grams of penguins of the Palmer Archipelago from what is easier to measure."
    """What is to be predicted from what, in a sentence for the agent to read."""
    source: str = "Gorman, Williams and Fraser (2014), doi:10.1371/journal.pone.0090081, as packaged in palmerpenguins"
    """Where the data are from."""
    license: str = "CC0 1.0"
    """Their licence."""
    test_share: float = 0.4
    """Share of the rows whose targets the agent never sees: half of them reward it, half only report its score."""
    out: str = "penguins"
    """Folder to write; its name is the task's."""
    seed: int = 0
    """Seeds the split."""


def parse_args() -> Args:
    """Read the arguments from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in fields(Args):
        name = "--" + field.name.replace("_", "-")
        parser.add_argument(name, type=type(field.default), default=field.default, help=f"({field.default})")
    return Args(**vars(parser.parse_args()))


def split(args: Args) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows to learn from and those to predict, shuffled; rows without a target are left out."""
    table = pd.read_csv(args.csv).dropna(subset=[args.target]).convert_dtypes()  # 1.0 is 1 again once gaps are gone
    table = table.sample(frac=1.0, random_state=args.seed).reset_index(drop=True)
    table.insert(0, "id", [f"r{row:05d}" for row in range(len(table))])
    tested = round(args.test_share * len(table))
    return table.iloc[tested:], table.iloc[:tested]


def manifest(args: Args, name: str) -> dict[str, object]:
    """Return task.json; ``design`` lets an agent without a language choose among some thousands of solutions."""
    return {
        "format": 1,
        "id": name,
        "title": args.about.rstrip("."),
        "kind": "tabular-regression" if args.metric in REGRESSION else "tabular-classification",
        "metric": args.metric,
        "id_column": "id",
        "target_columns": [args.target],
        "label_column": args.target,
        "limits": {"seconds": 5, "memory_mb": 1024},
        "design": {"family": "tabular"},
        "license": args.license,
        "source": args.source,
    }


def description(args: Args, train: pd.DataFrame, test: pd.DataFrame) -> str:
    """Return what the agent reads; a sentence on what each column means would help it."""
    columns = "\n".join(
        f"- `{name}`: {'a number' if pd.api.types.is_numeric_dtype(kind) else 'text'}"
        for name, kind in train.dtypes.items()
    )
    return f"""# {args.about}

Your code finds `train.csv` ({len(train)} rows), `test.csv` ({len(test)} rows, without `{args.target}`) and
`sample_submission.csv` in `input/`. Write `submission.csv` with the columns `id` and `{args.target}`, one row for each
of `test.csv`. It is scored by {args.metric}.

## Columns of train.csv

{columns}
"""


def main() -> None:
    """Write the folder."""
    args = parse_args()
    folder, (train, test) = Path(args.out), split(args)
    for part in ("public", "private"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    answers = test[["id", args.target]]
    train.to_csv(folder / "public" / "train.csv", index=False)
    test.drop(columns=args.target).to_csv(folder / "public" / "test.csv", index=False)
    answers.assign(**{args.target: train[args.target].median()}).to_csv(
        folder / "public" / "sample_submission.csv", index=False
    )
    halves = np.where(np.arange(len(test)) % 2, "report", "train")
    answers.assign(half=halves).to_csv(folder / "private" / "answers.csv", index=False)
    (folder / "task.json").write_text(json.dumps(manifest(args, folder.resolve().name), indent=2) + "\n")
    (folder / "description.md").write_text(description(args, train, test))
    (folder / "LICENSE-data.txt").write_text(f"{args.source}\n{args.license}\n")
    print(f"written: {folder} ({len(train)} rows to learn from, {len(test)} to predict)")


if __name__ == "__main__":
    main()
