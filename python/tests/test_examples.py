"""examples/python."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch

pytest.importorskip("tqdm")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"))

import train_gpt  # noqa: E402

SMALL = ["--layers", "2", "--dim", "16", "--heads", "2", "--context", "16", "--batch", "2", "--text", __file__]


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def rows(output):
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in output.splitlines() if line.startswith("| ")]
    return {row[0]: row[1:] for row in cells}


def test_train_gpt_trains_equally_under_every_policy_and_holds_less(capsys):
    assert train_gpt.main([*SMALL, "--compare", "--steps", "3", "--memory-budget", "40KiB,auto"]) == 0
    table = rows(capsys.readouterr().out)
    held = {name: float(table[name][2].split()[0]) for name in ("none", "recompute_all", "save_compute_intensive", "must_save_all")}
    assert held["recompute_all"] < held["save_compute_intensive"] < held["must_save_all"] == held["none"]
    assert len({table[name][4] for name in held} | {table[name][4] for name in ("40KiB", "auto")}) == 1


@pytest.mark.parametrize("region", ["block", "step"])
def test_train_gpt_reports_what_it_held(region, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert train_gpt.main([*SMALL, "--steps", "2", "--region", region, "--report", str(page)]) == 0
    assert re.search(r"holds \d+\.\d+ MiB for backward", capsys.readouterr().out)
    assert "<html" in page.read_text().lower()


@pytest.mark.parametrize("arguments", [["--heads", "3"], ["--steps", "0"], ["--memory-budget", "much"], ["--region", "loop"],
                                       ["--report", "page.html", "--compare"], ["--report", "page.html", "--policy", "none"]])
def test_train_gpt_says_what_is_wrong_with_its_options(arguments, capsys):
    with pytest.raises(SystemExit):
        train_gpt.main(arguments)
    assert arguments[0] in capsys.readouterr().err


def losses_of_train_fsdp(*options):
    script = pathlib.Path(train_gpt.__file__).parent / "train_fsdp.py"
    started = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script), *SMALL, "--steps", "2", *options],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert started.returncode == 0, started.stderr
    return re.findall(r"step \d+: loss (\S+)", started.stdout)


def test_train_fsdp_trains_equally_on_two_processes_with_and_without_regions():
    plain = losses_of_train_fsdp("--policy", "none")
    assert len(plain) == 2
    assert losses_of_train_fsdp("--policy", "recompute_all") == plain
    assert losses_of_train_fsdp("--policy", "recompute_all", "--regions", "after") == plain
    assert losses_of_train_fsdp("--policy", "save_compute_intensive", "--region", "model") == plain


def test_the_cells_of_the_notebook_run_one_after_the_other():
    notebook = json.loads((pathlib.Path(train_gpt.__file__).parent / "first_steps.ipynb").read_text())
    sources = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names = {}
    shown = []
    for source in sources:
        try:
            shown.append(eval(source, names))
        except SyntaxError:  # statements, of which a notebook shows the last if that is an expression
            exec(source, names)
            shown.append(eval(source.splitlines()[-1], names) if source.splitlines()[-1].startswith("ac2.report") else None)
    text, page = str(shown[3]), shown[3]._repr_html_()
    assert "held at most" in text and "What to change:" in text and "<iframe" in page
    assert "4 of 4 wrapped modules have had a region" in str(shown[4])
    assert shown[5] == ["0", "1", "2", "3"]
