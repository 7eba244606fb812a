"""The index page of tools/wheel: pip installs from it into an empty environment, and refuses a wheel that is not the one of the page."""

import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

_TOOL = pathlib.Path(__file__).parents[2] / "tools" / "wheel_index.py"


def make_wheel(folder, version):
    """A wheel of one module, named as those of tools/wheel are."""
    dist_info = f"torch_ac2-{version}.dist-info"
    files = {
        "ac2_stand_in.py": f"VERSION = {version!r}\n",
        f"{dist_info}/METADATA": f"Metadata-Version: 2.1\nName: torch-ac2\nVersion: {version}\n",
        f"{dist_info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{dist_info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{dist_info}/RECORD"])
    path = folder / f"torch_ac2-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return path


def run(*command):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
    return subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def index(folder):
    return run(sys.executable, _TOOL, folder)


@pytest.fixture
def empty_environment(tmp_path):
    made = run(sys.executable, "-m", "venv", tmp_path / "environment")
    assert made.returncode == 0, made.stdout
    return tmp_path / "environment" / "bin" / "python"


def test_pip_installs_from_the_page_what_it_is_asked_for_and_refuses_another_wheel_of_the_same_name(tmp_path, empty_environment):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for version in ("0.1.0+torch2.11", "0.1.0+torch2.15"):
        make_wheel(wheels, version)
    made = index(wheels)
    assert made.returncode == 0, made.stdout
    install = (empty_environment, "-m", "pip", "install", "--no-index", "--no-cache-dir", "--find-links", wheels / "index.html")

    installed = run(*install, "torch-ac2==0.1.0+torch2.11")
    assert installed.returncode == 0, installed.stdout
    told = run(empty_environment, "-c", "import ac2_stand_in; print(ac2_stand_in.VERSION)")
    assert told.stdout == "0.1.0+torch2.11\n"

    with zipfile.ZipFile(wheels / "torch_ac2-0.1.0+torch2.15-py3-none-any.whl", "a") as wheel:
        wheel.writestr("added.py", "")
    refused = run(*install, "torch-ac2==0.1.0+torch2.15")
    assert refused.returncode != 0 and "DO NOT MATCH THE HASHES" in refused.stdout, refused.stdout


def test_a_folder_without_wheels_is_an_error(tmp_path):
    refused = index(tmp_path)
    assert refused.returncode != 0 and f"no wheel in {tmp_path}" in refused.stdout
    assert not (tmp_path / "index.html").exists()
