"""The program behind compare_peers: two processes, worker.py and peer_models, that train the same models in turns.

A ratio is one of two times of the same round and the same language. The order of the forms rotates from round to round.
"""

import argparse
import array
import hashlib
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

PYTHON, CPP = "Python", "C++"
# (language, its name there, its name in the tables); the first of a language is what its others are compared with.
FORMS = [
    (PYTHON, "plain", "Python: plain"),
    (PYTHON, "checkpoint", "torch.utils.checkpoint"),
    (PYTHON, "selective", "the same, selective"),
    (CPP, "none", "C++: plain"),
    (CPP, "recompute_all", "recompute_all"),
    (CPP, "save_compute_intensive", "save_compute_intensive"),
    (CPP, "must_save_all", "must_save_all"),
]
PLAIN = {PYTHON: "plain", CPP: "none"}


class Refused(Exception):
    """A worker's answer was an error."""


class Process:
    def __init__(self, name, command):
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **request):
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"compare_peers: {self.name}'s process ended ({self.process.wait()}) at the request {request}")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def quantile(values, share):
    values = sorted(values)
    place = share * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (place - low) * (values[high] - values[low])


def in_bytes(count):
    return f"{count / 2**20:.2f} MiB" if count >= 2**20 else f"{count / 2**10:.2f} KiB"


def print_table(header, rows):
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells):
        first, *rest = cells
        return "| " + " | ".join([first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(rest, widths[1:]))]) + " |"

    print(line(header))
    print("|" + "|".join(["-" * (widths[0] + 2), *("-" * (w + 1) + ":" for w in widths[1:])]) + "|")
    for row in rows:
        print(line(row))


def largest_difference(one, other):
    """Of two files of floats, relative to the largest value."""
    a, b = array.array("f", one.read_bytes()), array.array("f", other.read_bytes())
    if len(a) != len(b):
        return float("inf")
    largest = max(map(abs, a))
    difference = max(abs(x - y) for x, y in zip(a, b))
    return difference / largest if largest > 0 else difference


class Model:
    """All that is found out about one model."""

    def __init__(self, name, processes):
        self.name, self.processes = name, processes
        self.results = {form: {"steps": []} for form in FORMS}
        self.languages_agree = ""

    def ask(self, form, what, **more):
        language, name, _ = form
        return self.processes[language].ask(do=what, model=self.name, form=name, **more)

    def able(self):
        return [form for form in FORMS if "error" not in self.results[form]]

    def compare_gradients(self, folder):
        digests = {}
        for form in FORMS:
            language, name, _ = form
            path = folder / f"{language}-{name}"
            try:
                self.ask(form, "gradients", file=str(path))
                self.results[form].update(self.ask(form, "count"))
            except Refused as error:
                self.results[form]["error"] = str(error)
                continue
            digests[form] = hashlib.sha256(path.read_bytes()).hexdigest()
            plain = next(f for f in FORMS if f[0] == language)
            self.results[form]["same_gradients"] = digests[form] == digests.get(plain)
            if name != PLAIN[language]:
                path.unlink()
        plain = [folder / f"{language}-{PLAIN[language]}" for language in (PYTHON, CPP)]
        if all(path.exists() for path in plain):
            same = plain[0].read_bytes() == plain[1].read_bytes()
            self.languages_agree = "equal to the last bit" if same else (
                f"different by up to {largest_difference(*plain):.1e} of the largest value")
        for path in plain:
            path.unlink(missing_ok=True)

    def run(self, rounds, warmup):
        forms = self.able()
        for round_ in range(-warmup, rounds):
            for turn in range(len(forms)):
                form = forms[(turn + round_ + warmup) % len(forms)]
                step = self.ask(form, "step")
                if round_ >= 0:
                    self.results[form]["steps"].append(step)

    def ratios(self, form, time="seconds"):
        plain = next(f for f in FORMS if f[0] == form[0])
        return [s[time] / p[time] for s, p in zip(self.results[form]["steps"], self.results[plain]["steps"])]

    def most(self, form, what):
        return max(step[what] for step in self.results[form]["steps"])

    def print(self):
        rows = []
        for form in FORMS:
            result = self.results[form]
            if "error" in result:
                rows.append([form[2], "fails"] + ["-"] * 7)
                continue
            ratios = self.ratios(form)
            middle = "" if form[1] in PLAIN.values() else f"{quantile(ratios, 0.25):.3f} to {quantile(ratios, 0.75):.3f}"
            rows.append([
                form[2],
                f"{1e3 * statistics.median(s['seconds'] for s in result['steps']):.1f} ms",
                f"{statistics.median(ratios):.3f}",
                middle,
                in_bytes(self.most(form, "held_bytes")),
                in_bytes(self.most(form, "forward_peak_bytes")),
                in_bytes(self.most(form, "backward_peak_bytes")),
                f"{result['replayed_ops']:,}",
                "equal" if result["same_gradients"] else "DIFFERENT",
            ])
        print(f"\n### {self.name}\n")
        print_table([
            "form", "step time", "/ plain", "middle half", "held after forward", "peak in forward", "peak in backward",
            "ops replayed", "gradients"
        ], rows)
        print(f"\nPlain gradients of the two languages are {self.languages_agree}.")
        for form in FORMS:
            if "error" in self.results[form]:
                print(f"{form[2]} fails: {self.results[form]['error'].splitlines()[0]}")

    def peaks_over(self):
        """Where ac2's peak in backward is over that of its peer: (ours, bytes, theirs, bytes)."""
        over = []
        for theirs, ours in ((FORMS[1], FORMS[4]), (FORMS[2], FORMS[5])):
            if theirs in self.able() and ours in self.able():
                peaks = [self.most(form, "backward_peak_bytes") for form in (ours, theirs)]
                if peaks[0] > peaks[1]:
                    over.append((ours[2], peaks[0], theirs[2], peaks[1]))
        return over


def parse_arguments():
    parser = argparse.ArgumentParser(prog="compare_peers", description="PyTorch's checkpointing and ac2, in turns.")
    parser.add_argument("--models", help="names with commas between; all if not given")
    parser.add_argument("--rounds", type=int, help="timed steps of every form (20)")
    parser.add_argument("--warmup", type=int, help="steps of every form before that (2)")
    parser.add_argument("--threads", type=int, default=1, help="threads of LibTorch (1)")
    parser.add_argument("--quick", action="store_true", help="tiny models, one round: that everything works")
    parser.add_argument("--json", metavar="FILE", help="write every step's figures there")
    for option in ("--peer_models", "--counter", "--worker"):
        parser.add_argument(option, required=True, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.rounds = options.rounds if options.rounds is not None else 1 if options.quick else 20
    options.warmup = options.warmup if options.warmup is not None else 0 if options.quick else 2
    for name, least in (("rounds", 1), ("warmup", 0), ("threads", 1)):
        if getattr(options, name) < least:
            parser.error(f"{name} is {getattr(options, name)}; it must be at least {least}")
    return options


def start(options):
    more = ["--tiny"] if options.quick else []
    more.append(f"--threads={options.threads}")
    cpp = Process(CPP, [options.peer_models, *more])
    described = cpp.ask(do="describe")
    saved = ",".join(described["saved_ops"])
    python = Process(PYTHON, [*shlex.split(options.worker), *more, f"--counter={options.counter}", f"--saved_ops={saved}"])
    return {PYTHON: python, CPP: cpp}, described


def chosen_models(options, described):
    if not options.models:
        return described["order"]
    models = options.models.split(",")
    for name in models:
        if name not in described["order"]:
            sys.exit(f'compare_peers: unknown model "{name}". Choose from: {", ".join(described["order"])}')
    return models


def main():
    options = parse_arguments()
    processes, described = start(options)
    names = chosen_models(options, described)
    peer = processes[PYTHON].ask(do="describe", models=names)
    for name in names:
        if peer["models"][name] != described["models"][name]:
            sys.exit(f"compare_peers: the parameters of {name} in networks.py are not those in networks.cc")
    print(f"LibTorch {described['libtorch']}, torch {peer['libtorch']}, {described['threads']} thread(s), "
          f"{options.rounds} rounds" + (", tiny models: no figures to keep" if options.quick else ""))

    models = []
    with tempfile.TemporaryDirectory(prefix="compare_peers-") as folder:
        for name in names:
            model = Model(name, processes)
            model.compare_gradients(pathlib.Path(folder))
            model.run(options.rounds, options.warmup)
            model.print()
            sys.stdout.flush()
            models.append(model)
    for process in processes.values():
        process.close()

    print()
    for model in models:
        for ours, our_peak, theirs, their_peak in model.peaks_over():
            print(f"{model.name}: the peak in backward of {ours} is {our_peak:,} bytes, over the {their_peak:,} of {theirs}.")
    if options.json:
        raw = {model.name: {form[2]: model.results[form] for form in FORMS} for model in models}
        head = {"libtorch": described["libtorch"], "threads": described["threads"], "rounds": options.rounds}
        pathlib.Path(options.json).write_text(json.dumps({**head, "models": raw}, indent=1) + "\n")
    if not all(model.results[form]["same_gradients"] for model in models for form in model.able()):
        sys.exit("compare_peers: gradients differ")


if __name__ == "__main__":
    main()
