"""``python -m ac2``: programs end, print and compute as under ``python``, in regions that last as long as their threads."""

import os
import re
import subprocess
import sys
import textwrap
import zipfile

import pytest

import ac2
from ac2 import _C, _start

NOTHING = "ac2: nothing was done: the program did not import torch.\n"


def run(*arguments, cwd=None, stdin=None, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AC2_")}
    environment.update({name: value for name, value in variables.items() if value is not None}, OMP_NUM_THREADS="1")
    return subprocess.run(
        [sys.executable, "-B", *map(str, arguments)], cwd=cwd, input=stdin, env=environment, capture_output=True, text=True
    )


def launch(*arguments, **options):
    return run("-m", "ac2", *arguments, **options)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def same_end(arguments, ours="", **options):
    """Runs the program both ways. All but ac2's own line is the same."""
    plain, launched = run(*arguments, **options), launch(*arguments, **options)
    assert launched.stdout == plain.stdout
    assert launched.stderr == plain.stderr + ours
    assert launched.returncode == plain.returncode
    return launched


def test_a_torch_that_cannot_be_imported_fails_as_under_python(tmp_path):
    write(tmp_path / "torch/__init__.py", "raise ImportError('no libtorch_cpu.so')\n")
    write(tmp_path / "program.py", "import torch\n")
    same_end(["program.py"], NOTHING, cwd=tmp_path)


# --- what the program sees --------------------------------------------------------------------------------------------

LOOKS_AROUND = """
    '''The program's own text.'''
    import sys
    main = sys.modules["__main__"]
    print(sys.argv, sys.path[0], __name__, __package__, __doc__, main is sys.modules[__name__], vars(main) is globals())
    print(sorted(globals()), globals().get("__file__"), globals().get("__cached__"), type(__loader__), type(__builtins__))
    print(__spec__ and (__spec__.name, __spec__.origin), __annotations__, [name for name in sys.modules if "ac2" in name or "torch" in name])
"""
OF_OURS = re.compile(r"'ac2[\w.]*'(, )?")


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("places")
    write(folder / "program.py", LOOKS_AROUND)
    write(folder / "package/__init__.py", "")
    write(folder / "package/__main__.py", LOOKS_AROUND)
    write(folder / "package/inner.py", LOOKS_AROUND)
    write(folder / "folder/__main__.py", LOOKS_AROUND)
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere/link.py").symlink_to(folder / "program.py")
    with zipfile.ZipFile(folder / "program.zip", "w") as archive:
        archive.write(folder / "folder/__main__.py", "__main__.py")
    import py_compile

    py_compile.compile(str(folder / "program.py"), cfile=str(folder / "compiled.pyc"))
    return folder


@pytest.mark.parametrize(
    "program",
    [
        ["program.py", "a", "-m", "--quiet", "--help"],
        ["elsewhere/link.py"],
        ["compiled.pyc"],
        ["-m", "package"],
        ["-m", "package.inner", "-x", "1"],
        ["folder", "b"],
        ["program.zip"],
        ["-c", textwrap.dedent(LOOKS_AROUND), "-c", "c"],
    ],
    ids=lambda program: " ".join(program)[:20],
)
def test_a_program_sees_what_it_sees_under_python(program, places):
    plain, launched = run(*program, cwd=places), launch(*program, cwd=places)
    assert OF_OURS.sub("", launched.stdout) == plain.stdout
    assert launched.stderr == NOTHING
    assert launched.returncode == plain.returncode == 0


def test_a_program_is_read_from_stdin(places):
    same_end(["-", "x"], NOTHING, stdin="import sys\nprint(sys.argv, __name__)\n")


def test_a_breakpoint_stops_in_the_program(tmp_path):
    program = write(tmp_path / "stops.py", "x = 3\nbreakpoint()\nprint('after', x)\n")
    same_end([program], NOTHING, stdin="p x\nx = 4\nc\n")


# --- how it ends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "import sys; sys.exit(3)",
        "import sys; sys.exit('a text')",
        "def inner():\n    raise ValueError('inner')\ntry:\n    inner()\nexcept ValueError as error:\n    raise KeyError('outer') from error",
        "def f(:",
        "raise KeyboardInterrupt",
        "import sys; sys.excepthook = lambda *found: print('hook', found[:2], found[2].tb_lineno)\nraise ValueError(1)",
        "import threading\ndef fails(): raise ValueError('in a thread')\nthread = threading.Thread(target=fails, name='T')\n"
        "thread.start(); thread.join()",
        "import atexit\natexit.register(print, 'first')\natexit.register(print, 'second')\nraise SystemExit(4)",
        "import threading, atexit\natexit.register(print, 'at exit')\n"
        "threading.Thread(target=lambda: (threading.main_thread().join(), print('thread'))).start()\nprint('main')",
        "import warnings; warnings.simplefilter('always'); warnings.warn('a warning')",
    ],
    ids=lambda text: text[:24],
)
def test_a_program_ends_as_under_python(text, tmp_path):
    same_end([write(tmp_path / "ends.py", text)], NOTHING)


def test_a_program_that_ends_at_once_says_nothing(tmp_path):
    same_end(["-c", "import os; os._exit(5)"])
    assert same_end(["-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"]).returncode < 0


def test_a_module_that_fails_has_no_frame_of_ours(tmp_path):
    write(tmp_path / "fails.py", "raise ValueError('here')")
    write(tmp_path / "folder/__main__.py", "raise ValueError('here')")
    same_end(["-m", "fails"], NOTHING, cwd=tmp_path)
    same_end(["folder"], NOTHING, cwd=tmp_path)


def test_a_program_that_is_not_there_is_pythons_error(tmp_path):
    (tmp_path / "empty").mkdir()
    assert same_end(["missing.py"], cwd=tmp_path).returncode == 2
    same_end(["empty"], NOTHING, cwd=tmp_path)
    same_end(["-m", "no_such_module"], NOTHING, cwd=tmp_path)


# --- what it is told --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, variables, expected",
    [
        ([], {}, "no program was given"),
        (["--memory-budget", "8GiB"], {}, "no program was given"),
        (["-m"], {}, "-m is without a module"),
        (["--budget", "x.py"], {}, "unrecognized arguments: --budget"),
        (["--memory-budget", "0", "x.py"], {}, 'argument --memory-budget: the budget is "0"; expected a positive number of bytes'),
        (["--memory-budget", "soft:9999999999GiB", "x.py"], {}, "expected a positive number of bytes, below 2**63"),
        (["--memory-budget", "8GB", "x.py"], {}, 'argument --memory-budget: the budget is "8GB"; expected "auto", or'),
        (["--memory-budget=hard:1GiB", "x.py"], {}, 'the budget is "hard:1GiB"'),
        (["x.py"], {"AC2_MEMORY_BUDGET": "all"}, 'AC2_MEMORY_BUDGET is "all"; expected "auto", or'),
        (["--chunked-loss", "soft:1MiB", "x.py"], {}, 'argument --chunked-loss: the loss\'s chunk is "soft:1MiB"; expected "auto", or'),
        (["--chunked-loss", "0", "x.py"], {}, "expected a positive number of bytes"),
        (["x.py"], {"AC2_CHUNKED_LOSS": "1MB"}, 'AC2_CHUNKED_LOSS is "1MB"; expected "auto", or'),
        (["x.py"], {"AC2_VERIFY": "yes"}, 'AC2_VERIFY is "yes"; expected 1 or 0.'),
        (["x.py"], {"AC2_QUIET": "2"}, 'AC2_QUIET is "2"; expected 1 or 0.'),
    ],
)
def test_a_wrong_option_is_named(options, variables, expected):
    ended = launch(*options, **variables)
    assert ended.returncode == 2
    assert expected in ended.stderr
    assert "Traceback" not in ended.stderr


def test_help_names_every_option_and_variable():
    ended = launch("--help")
    assert ended.returncode == 0
    for word in ["--memory-budget", "--policy", "--report", "--verify", "--quiet", "-m", "-c", "--chunked-loss", _start.CHUNKED_LOSS, *ENVIRONMENT]:
        assert word in ended.stdout


ENVIRONMENT = [_start.BUDGET, _start.POLICY, _start.REPORT, _start.VERIFY, _start.QUIET]


def test_the_runtime_reads_the_variables_that_the_launcher_sets():
    assert _C.variables() == ENVIRONMENT


def test_options_win_over_the_environment_and_reach_what_the_program_starts():
    tells = "import os; print([os.environ.get(name) for name in %r])" % (ENVIRONMENT,)
    ended = launch("--memory-budget", "soft:1GiB", "--quiet", "--report", "/page.html", "-c", tells, AC2_MEMORY_BUDGET="2GiB", AC2_VERIFY="1")
    assert ended.stdout == "['soft:1GiB', None, '/page.html', '1', '1']\n"
    assert ended.stderr == ""


@pytest.mark.parametrize(
    "text", ["auto", "65536", "64MiB", "1.5 GiB", "peak:20GiB", "soft:1GiB", " 2TiB ", "", "GiB", "8GB", "-1", "1e9", "0", "0.5", "9999999999GiB", "hard:1GiB", "peak:", "soft:x"]
)
def test_the_first_look_at_a_budget_takes_what_the_runtime_takes(text):
    def is_taken(check):
        try:
            check(text, "budget")
        except ValueError:
            return False
        return True

    assert is_taken(_start.check_budget) == is_taken(_C.check_budget)


# --- regions ----------------------------------------------------------------------------------------------------------

# Every kind of thread and process; each prints whether it has a region, and all train.
PROGRAM = """
    import dataclasses, hashlib, os, pickle, sys, threading
    from concurrent.futures import ThreadPoolExecutor

    os.environ["AC2_TEST_BEFORE_TORCH"] = "1"
    import torch
    import torch.multiprocessing as mp
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    @dataclasses.dataclass
    class Result:
        digest: str

    class Data(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return torch.full((64,), float(i)), has_region()

    def has_region():
        ac2 = sys.modules.get("ac2")
        return ac2 is not None and ac2.is_checkpoint_enabled()

    def train(seed):
        generator = torch.Generator().manual_seed(seed)
        layers = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64), nn.Tanh()) for _ in range(6))
        model = nn.Sequential(*layers)
        for parameter in model.parameters():
            nn.init.uniform_(parameter, -0.2, 0.2, generator=generator)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            model(torch.randn(256, 64, generator=generator)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        digest = hashlib.sha256()
        for parameter in model.parameters():
            digest.update(parameter.detach().numpy().tobytes())
        return Result(digest.hexdigest())

    def in_process(number, queue):
        queue.put((has_region(), train(number)))

    def in_child(method):
        context = mp.get_context(method)
        queue = context.SimpleQueue()
        child = context.Process(target=in_process, args=(5, queue))
        child.start()
        result = queue.get()
        child.join()
        assert child.exitcode == 0
        return result

    def loaded(method):
        loader = DataLoader(Data(), batch_size=2, num_workers=1, multiprocessing_context=method)
        return [(batch.sum().item(), regions.tolist()) for batch, regions in loader]

    def report(what, region, *results):
        print(what, *results)
        print("region", what, region, file=sys.stderr)

    if __name__ == "__main__":
        assert pickle.loads(pickle.dumps(Result("x"))) == Result("x")
        report("main", has_region(), train(0), train(5))
        with ThreadPoolExecutor(2) as pool:
            report("pool", list(pool.map(lambda _: has_region(), range(2))), list(pool.map(train, range(2))))
        found = []
        thread = threading.Thread(target=lambda: found.extend((has_region(), train(3))))
        thread.start()
        thread.join()
        report("thread", *found)
        for method in sys.argv[1:]:
            report(method, *in_child(method))
            batches = loaded(method)
            report("loader " + method, [regions for _, regions in batches], [batch for batch, _ in batches])
        trained = threading.Event()
        # It still runs at the end, in its region.
        threading.Thread(target=lambda: (train(4), trained.set(), threading.Event().wait()), daemon=True).start()
        trained.wait()
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return write(tmp_path_factory.mktemp("program") / "trains.py", PROGRAM)


def words_of(stderr):
    """ac2's own lines."""
    return [line for line in stderr.splitlines() if line.startswith("ac2")]


def test_every_thread_and_process_that_trains_has_a_region_and_computes_the_same_bits(program):
    plain = run(program)
    assert plain.returncode == 0, plain.stderr
    launched = launch("--memory-budget", "soft:1MiB", program, "fork", "spawn")
    assert launched.returncode == 0, launched.stderr
    *_, of_child = plain.stdout.splitlines()[0].rsplit(" ", 1)
    lines = [f"{line} {result}" for line in ("fork", "spawn") for line, result in ((line, of_child), ("loader " + line, "[64.0, 320.0]"))]
    assert launched.stdout == plain.stdout + "\n".join(lines) + "\n"
    regions = dict(re.findall(r"^region (.*?) ((?:True|False|\[).*)$", launched.stderr, re.M))
    assert regions == {
        "main": "True",
        "pool": "[True, True]",
        "thread": "True",
        "fork": "True",
        "spawn": "True",
        "loader fork": "[[False, False], [False, False]]",
        "loader spawn": "[[False, False], [False, False]]",
    }
    words = words_of(launched.stderr)
    assert len(words) == 3, launched.stderr  # of the two children, and in the end of the program
    assert all(re.match(r"ac2, process \d+: the memory budget of 1MiB", line) for line in words[:2])
    assert words[2].startswith("ac2: the memory budget of 1MiB had no room for all that backward needed: ")
    assert launched.stderr.count("  What was dropped had ") == 3
    assert launched.stderr.count("  Dropping and computing again took ") == 3
    assert "Most was held of:" in launched.stderr


FORKS = """
    import multiprocessing, sys
    import torch
    from torch.utils.data import DataLoader

    def train():
        weight = torch.ones(64, 64, requires_grad=True)
        weight.mm(weight).sin().mm(weight).sum().backward()

    train()
    print([batch.tolist() for batch in DataLoader(torch.arange(4), batch_size=2, num_workers=2, multiprocessing_context="fork")])
    child = multiprocessing.get_context("fork").Process(target=sys.exit, args=(0,))
    child.start()
    child.join()
"""


def test_a_forked_process_does_not_say_again_what_its_parent_has_to_say(tmp_path):
    program = write(tmp_path / "forks.py", FORKS)
    plain, launched = run(program), launch("--memory-budget", "soft:1KiB", program)
    assert launched.stdout == plain.stdout
    assert launched.stderr.count("UserWarning: The soft memory budget") == 1, launched.stderr
    assert launched.stderr.count("More than 1KiB was taken") == 1, launched.stderr


STEPS = """
    import sys, torch
    assert "ac2" in sys.modules, "the region is open"
    import ac2
    layers = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()) for _ in range(8)])
    torch.manual_seed(1)
    def step():
        for parameter in layers.parameters():
            torch.nn.init.constant_(parameter, 0.01)
        layers(torch.ones(512, 64)).square().sum().backward()
        gradients = [parameter.grad.clone() for parameter in layers.parameters()]
        layers.zero_grad()
        return gradients
"""


def test_a_peak_drops_and_the_page_is_written(tmp_path):
    program = write(
        tmp_path / "steps.py",
        textwrap.dedent(STEPS)
        + textwrap.dedent("""
            with ac2.DisableCheckpointing():
                expected = step()
            assert all(torch.equal(*pair) for pair in zip(step(), expected))
            import atexit
            atexit.register(lambda: print("still open", ac2.is_checkpoint_enabled()))
            raise SystemExit(3)
        """),
    )
    ended = launch("--memory-budget", "peak:2MiB", "--report", tmp_path / "page.html", program)
    assert ended.returncode == 3, ended.stderr
    assert ended.stdout == "still open True\n"
    assert re.search(r"^ac2: the peak of 2MiB was reached \d+ times: \d+ values were dropped and \d+ ops were computed again", ended.stderr, re.M)
    assert f"The page is {tmp_path}/page.html." in ended.stderr
    assert "<html" in (tmp_path / "page.html").read_text()


def test_an_unknown_policy_is_named_where_torch_is_imported():
    ended = launch("-c", "import torch; print('goes on')", AC2_POLICY="sped")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith('ac2: error: AC2_POLICY, or --policy: "sped" is no policy: did you mean "speed"?')
    assert len(ended.stderr.splitlines()) == 1


def test_forms_are_used_by_the_budget_and_a_wrong_list_is_named(tmp_path):
    program = write(
        tmp_path / "packs.py",
        """
        import torch
        torch.manual_seed(0)
        w = torch.randn(256, 256) / 16
        x = torch.randn(256, 256, requires_grad=True)
        y = x
        for _ in range(8):
            y = (y @ w @ w).tanh()
        y.sum().backward()
        print(x.grad.double().sum().item().hex())
        """,
    )
    plain = run(program)
    packed = launch("--memory-budget", "soft:1MiB", "--forms", f"one_bit,file:{tmp_path}", program)
    assert (packed.returncode, packed.stdout) == (0, plain.stdout)
    assert "packed" in packed.stderr
    wrong = launch("--forms", "gzip", "-c", "import torch; print('goes on')")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith('ac2: error: AC2_FORMS, or --forms: has "gzip"; expected some of one_bit')


LANGUAGE_MODEL = """
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, vocab_size=512
    )
    model = transformers.LlamaForCausalLM(config).{mode}()
    ids = torch.arange(60).view(3, 20)
    outputs = model(ids, labels=ids, use_cache=False)
    outputs.loss.backward()
    print(type(outputs.logits).__name__, round(outputs.loss.item(), 3))
"""


@pytest.mark.parametrize("options, variables", [(["--chunked-loss", "auto"], {}), ([], {"AC2_CHUNKED_LOSS": "64KiB"})])
def test_losses_of_causal_language_models_in_training_are_computed_in_chunks(tmp_path, options, variables):
    pytest.importorskip("transformers.loss.loss_utils")
    program = write(tmp_path / "program.py", LANGUAGE_MODEL.replace("{mode}", "train"))
    kind, loss = launch(program).stdout.split()
    ended = launch(*options, program, **variables)
    assert (ended.returncode, kind, ended.stdout.split()) == (0, "Tensor", ["DeferredLogits", loss])
    assert "chunked-loss" not in ended.stderr


def test_chunks_of_losses_that_came_to_nothing_are_told(tmp_path):
    ended = launch("--chunked-loss", "auto", "-c", "import torch")
    assert "ac2: --chunked-loss did nothing: the program did not import transformers.\n" in ended.stderr
    assert "chunked-loss" not in launch("--chunked-loss", "auto", "--quiet", "-c", "import torch").stderr
    pytest.importorskip("transformers.loss.loss_utils")
    ended = launch("--chunked-loss", "auto", write(tmp_path / "program.py", LANGUAGE_MODEL.replace("{mode}", "eval")))
    assert "did nothing: no causal language model of transformers was given labels in training.\n" in ended.stderr
    assert ended.stdout.startswith("Tensor")
    compiled = LANGUAGE_MODEL.replace("{mode}()", "train()\n    model.compile(backend='eager')")
    ended = launch("--chunked-loss", "auto", write(tmp_path / "program.py", compiled))
    assert "LlamaForCausalLM, which torch.compile compiles as a whole: all of its logits are computed" in ended.stderr
    assert "did nothing, for reasons that a warning has given.\n" in ended.stderr


def test_an_error_about_memory_ends_with_what_is_held(tmp_path):
    program = write(
        tmp_path / "fails.py",
        textwrap.dedent(STEPS)
        + textwrap.dedent("""
            graph = layers(torch.ones(512, 64))
            torch.empty(1 << 60)
        """),
    )
    ended = launch(program)
    assert ended.returncode == 1
    traceback, ours = ended.stderr.split("\nac2: ", 1)
    assert traceback.startswith(f'Traceback (most recent call last):\n  File "{program}"')
    assert "can't allocate memory" in traceback
    assert ours.startswith("the program ended because memory ran out when nothing more could be dropped.\n")
    assert f"  {1 << 32}.00 GiB were asked for by aten::empty.memory_format, at {program}, line " in ours


def test_what_a_program_holds_itself_is_said_where_memory_runs_out(tmp_path):
    program = write(
        tmp_path / "keeps.py",
        textwrap.dedent(STEPS)
        + textwrap.dedent("""
            optimizer = torch.optim.AdamW(layers.parameters())
            losses = []

            def train():
                for _ in range(40):
                    loss = layers(torch.ones(64, 64)).square().sum()
                    optimizer.zero_grad()
                    loss.backward(retain_graph=True)
                    optimizer.step()
                    losses.append(loss)
                torch.empty(1 << 50)

            train()
        """),
    )
    ended = launch(program)
    assert ended.returncode == 1
    ours = ended.stderr.split("\nac2: ", 1)[1]
    assert f"  {1 << 22}.00 GiB were asked for by aten::empty.memory_format, at {program}, line {len(program.read_text().splitlines()) - 2}, in train.\n" in ours
    assert re.search(r"^  Regions hold .* of results for 40 graphs that a backward may still walk", ours, re.M), ours
    assert "keep its item() or detach() instead" in ours
    parameters = 8 * (64 * 64 + 64) * 4 / 1024
    assert f"  On cpu the program holds {parameters:.2f} KiB of parameters, {parameters:.2f} KiB of gradients, " in ours
    assert " of AdamW's state: no budget may drop these.\n" in ours
    assert "  A list, losses, has 40 tensors whose graphs it keeps.\n" in ours


def test_a_strict_budget_that_ends_the_program_is_named(tmp_path):
    program = write(
        tmp_path / "refused.py",
        textwrap.dedent(STEPS)
        + textwrap.dedent("""
            step()
        """),
    )
    ended = launch("--memory-budget", "100KiB", program)
    assert ended.returncode == 1
    assert "RuntimeError: The memory budget of 102400 bytes cannot be met: at " in ended.stderr
    assert "\nac2: the program ended because the memory budget of 100KiB could not be met. Its error says" in ended.stderr
    assert "    --memory-budget soft:100KiB\n" in ended.stderr
    assert launch("--memory-budget", "soft:100KiB", program).returncode == 0


def test_an_error_of_the_programs_own_is_no_word_of_ours(tmp_path):
    program = write(tmp_path / "fails.py", textwrap.dedent(STEPS) + "\nstep()\nraise ValueError('of its own')\n")
    ended = launch(program)
    assert ended.returncode == 1
    assert ended.stderr.endswith("ValueError: of its own\n" + words_of(ended.stderr)[0] + "\n")
    assert words_of(ended.stderr)[0].startswith("ac2: nothing was needed")


def test_ranks_of_torchrun_have_regions_and_compute_the_same_bits(tmp_path):
    program = write(
        tmp_path / "rank.py",
        textwrap.dedent(STEPS)
        + textwrap.dedent("""
            import os
            import torch.distributed as dist
            from torch.nn.parallel import DistributedDataParallel
            dist.init_process_group("gloo")
            layers = DistributedDataParallel(layers)
            with ac2.DisableCheckpointing():
                expected = step()
            assert all(torch.equal(*pair) for pair in zip(step(), expected))
            sys.stdout.write(f"rank {dist.get_rank()} {ac2.is_checkpoint_enabled()}\\n")  # at once: ranks share it
            dist.destroy_process_group()
        """),
    )
    ended = run(
        "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "ac2", "--memory-budget", "soft:600KiB", program
    )
    if ended.returncode != 0 and "\nterminate called without an active exception\n" in ended.stderr:
        # A thread of gloo's that wants Python's lock while Python ends is ended by Python, and its process by libstdc++. torchrun then
        # ends the other rank, wherever that is.
        pytest.skip("a rank was ended while Python ended, as PyTorch's are now and then (pytorch 190489)")
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == ["rank 0 True", "rank 1 True"]
    words = sorted(words_of(ended.stderr))
    assert len(words) == 2, ended.stderr
    assert words[0].startswith("ac2, rank 1: the memory budget of 600KiB had no room")
    assert words[1].startswith("ac2: the memory budget of 600KiB had no room")


def test_the_extension_opens_a_region_on_the_thread_of_the_cells(tmp_path):
    # What IPython does at %load_ext ac2 and %unload_ext ac2.
    cells = write(
        tmp_path / "cells.py",
        """
        import threading, torch, ac2
        waits = threading.Event()
        found = []
        before = threading.Thread(target=lambda: (waits.wait(), found.append(ac2.is_checkpoint_enabled())))
        before.start()
        ac2.load_ipython_extension(None)
        ac2.load_ipython_extension(None)
        print("loaded", ac2.is_checkpoint_enabled())
        after = threading.Thread(target=lambda: found.append(ac2.is_checkpoint_enabled()))
        after.start()
        after.join()
        waits.set()
        before.join()
        print("threads", found)
        x = torch.ones(8, requires_grad=True)
        x.exp().sum().backward()
        ac2.unload_ipython_extension(None)
        print("unloaded", ac2.is_checkpoint_enabled())
        """,
    )
    ended = run(cells, AC2_MEMORY_BUDGET="soft:1GiB")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "loaded True\nthreads [True, False]\nunloaded False\n"
    assert re.fullmatch("ac2: nothing was needed: the memory budget of 1GiB had room for all that backward needed .at most .* B, with parameters and inputs.\\.\n", ended.stderr)


def test_an_extension_that_is_loaded_again_says_at_the_end_what_was_done_since(tmp_path):
    cells = write(
        tmp_path / "cells.py",
        """
        import torch, ac2
        x = torch.ones(8, requires_grad=True)
        ac2.load_ipython_extension(None)
        ac2.unload_ipython_extension(None)
        ac2.load_ipython_extension(None)
        x.exp().sum().backward()
        """,
    )
    ended = run(cells, AC2_MEMORY_BUDGET="soft:1GiB")
    assert ended.returncode == 0, ended.stderr
    first, second = ended.stderr.splitlines()
    assert first == "ac2: nothing was needed: no op was recorded."
    assert second.startswith("ac2: nothing was needed: the memory budget of 1GiB had room for all that backward needed")


def test_the_extension_names_a_variable_that_is_wrong(monkeypatch):
    monkeypatch.setenv("AC2_MEMORY_BUDGET", "8GB")
    with pytest.raises(ValueError, match='AC2_MEMORY_BUDGET is "8GB"'):
        ac2.load_ipython_extension(None)
