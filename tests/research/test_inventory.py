import pytest

from wmrl_envs.errors import TaskError
from wmrl_envs.research.inventory import Column, DataInventory


@pytest.fixture
def public(tmp_path):
    (tmp_path / "train.csv").write_text(
        "id,age,name,member,score,klass\n007,3,Ann,True,0.5,sun\n008,,Bob,False,,rain\n009,5,Ann,True,1.5,sun\n"
    )
    (tmp_path / "test.csv").write_text("id,age,name,member,score\n1,3,Eve,True,1\n")
    (tmp_path / "images").mkdir()
    (tmp_path / "images/a.bin").write_bytes(b"x" * 3000)
    return tmp_path


def test_columns_and_files(public):
    inventory = DataInventory.of(public, "id", ["sun", "rain"])
    assert (inventory.train_rows, inventory.test_rows) == (3, 1)
    assert inventory.columns == (
        Column("id", "string", 3, 0, "id", "007"),
        Column("age", "float", 2, 1, "feature", "3.0"),
        Column("name", "string", 2, 0, "feature", "Ann"),
        Column("member", "bool", 2, 0, "feature", "True"),
        Column("score", "float", 2, 1, "feature", "0.5"),
        Column("klass", "string", 2, 0, "target", "sun"),
    )
    assert [column.name for column in inventory.features] == ["age", "name", "member", "score"]
    assert [name for name, _ in inventory.files] == ["images/a.bin", "test.csv", "train.csv"]
    assert dict(inventory.files)["images/a.bin"] == 3000


def test_description_names_every_file_and_column(public):
    text = DataInventory.of(public, "id", ["klass"]).describe()
    assert "- input/images/a.bin (2.9 kB)" in text
    assert "train.csv has 3 rows, test.csv 1." in text
    assert "- age: float, 2 distinct, 1 missing; such as '3.0'" in text
    assert "- klass: string, 2 distinct, 0 missing, target; such as 'sun'" in text


def test_numbered_columns_share_a_line(tmp_path):
    names = [f"pixel{place}" for place in range(100)]
    header, row = ",".join(["id", *names, "a1", "a2"]), ",".join(["1"] * 103)
    for file in ("train.csv", "test.csv"):
        (tmp_path / file).write_text(f"{header}\n{row}\n")
    text = DataInventory.of(tmp_path, "id", ["a2"]).describe()
    assert "- pixel0 ... pixel99 (100 columns): int, 0 missing; such as '1'" in text
    assert "- a1: int, 1 distinct" in text
    assert "- a2: int, 1 distinct, 0 missing, target" in text


def test_a_column_without_values(tmp_path):
    for file in ("train.csv", "test.csv"):
        (tmp_path / file).write_text("id,nothing\n1,\n2,\n")
    column = DataInventory.of(tmp_path, "id", ["target"]).columns[1]
    assert column == Column("nothing", "float", 0, 2, "feature", "")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\xff", b'a,b\n"1'])
def test_unreadable_data_is_named(public, content):
    (public / "test.csv").write_bytes(content)
    with pytest.raises(TaskError, match=r"cannot read .*test\.csv"):
        DataInventory.of(public, "id", ["klass"])
