"""Where the site's pages come from (mkdocs calls these functions).

The pages of the repository are the site's, under the paths that they have, so that the links between them are right on both. A link to
another file of the repository leads to a page with that file's text. The pages of the reference are written here: which headers there
are, and which names Python has.
"""
import ast
import pathlib
import posixpath
import re
import sys

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import api_page  # noqa: E402

PAGES = ["*.md", "docs/*.md", "docs/notes/*.md", "policies/README.md", "benchmarks/README.md"]
PICTURES = ["docs/*.png", "docs/*.svg"]
# Of Doxygen's pages what nobody needs who has a search: the files' text, folders, and lists by letter.
LEFT_OUT = re.compile(
    r"cpp/(.*_source|dir_.*|class_member.*|namespace_member.*|functions|macros|variables|links|pages|examples|hierarchy|classes|files|"
    r"modules|namespaces|namespace(std|torch|c10|at).*|struct(std|torch|c10|at)_.*|class(std|torch|c10|at)_.*)\.md"
)
LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)\s]*)?\)")
LANGUAGES = {".h": "cpp", ".cc": "cpp", ".txt": "cmake", ".py": "python", ".bazelrc": "sh"}


def on_files(files, config):
    for file in list(files):
        if LEFT_OUT.fullmatch(file.src_uri):
            files.remove(file)
    for pattern in PAGES + PICTURES:
        for path in sorted(ROOT.glob(pattern)):
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    for path in sorted({target for page in _repository_pages() for target in _linked_sources(page)}):
        files.append(File.generated(config, _page_of_source(path), content=_text_of_source(path)))
    files.append(File.generated(config, "site.css", abs_src_path=str(ROOT / "docs" / "site" / "site.css")))
    files.append(File.generated(config, "cpp/headers.md", content=_headers()))
    for name, content in _python_pages().items():
        files.append(File.generated(config, f"python/{name}.md", content=content))
    return files


def on_page_markdown(markdown, page, config, files):
    here = page.file.src_uri
    if here.startswith("cpp/"):
        return _without_dead_links(markdown, here, files) + _declarations(here)

    def to_source(found):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), found.group(1)))
        if files.get_file_from_path(path) is not None or not (ROOT / path).is_file():
            return found.group(0)
        return f"]({posixpath.relpath(_page_of_source(path), posixpath.dirname(here) or '.')})"

    return LINK.sub(to_source, markdown)


def _repository_pages():
    return [path for pattern in PAGES for path in sorted(ROOT.glob(pattern))]


def _linked_sources(page):
    """The files of the repository, besides pages and pictures, that a page links to."""
    shown = {path for pattern in PAGES + PICTURES for path in ROOT.glob(pattern)}
    for target, _ in LINK.findall(page.read_text()):
        path = (page.parent / target).resolve()
        if path.is_file() and path not in shown and ROOT in path.parents:
            yield path.relative_to(ROOT).as_posix()


def _page_of_source(path):
    return "source/" + path.lstrip(".") + ".md"


def _text_of_source(path):
    language = LANGUAGES.get(pathlib.Path(path).suffix or path, "")
    fence = "`" * 6
    return f"---\nsearch: {{exclude: true}}\n---\n\n# {path}\n\n{fence}{language}\n{(ROOT / path).read_text()}\n{fence}\n"


def _without_dead_links(markdown, here, files):
    """Of a page of Doxygen's the text, in which links to pages that are left out are text."""

    def keep(found):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), found.group(2)))
        return found.group(0) if files.get_file_from_path(path) is not None else found.group(1)

    markdown = re.sub(r"\[([^\]\[]*)\]\(([^)#\s:]+\.md)(?:#[^)]*)?\)", keep, markdown)
    # mkdoxy gives an operator that is a literal's end an anchor with quotation marks, which a heading's never has.
    return re.sub(r'\[([^\]\[]*)\]\(#[^)]*"[^)]*\)', r"\1", markdown)


def _declarations(here):
    """Of the page of a header what it declares: Doxygen has functions on the page of their namespace."""
    header = next((header for header in api_page.public_headers(ROOT) if here == f"cpp/{_page_of_header(header)}"), None)
    code = api_page.declarations((ROOT / header).read_text()) if header else ""
    return f"\n\n## Declarations\n\n```cpp\n{code}\n```\n" if code else ""


def _page_of_header(header):
    return pathlib.PurePosixPath(header).name.replace("_", "__").replace(".", "_8") + ".md"


def _headers():
    lines = ["# Headers", "", "`ac2/ac2.h` has all of these but the ready-made policies, which `policies/policies.h` has.", ""]
    for header in api_page.public_headers(ROOT):
        said = re.match(r"// (.*(?:\n// .+)*)", (ROOT / header).read_text()).group(1).replace("\n// ", " ")
        first = re.split(r"(?<=[.:])(?:\s|$)", said)[0].rstrip(":.")
        lines.append(f"- [`{header}`]({_page_of_header(header)}): {first}.")
    return "\n".join(lines) + "\n"


def _python_pages():
    package = ROOT / "python" / "ac2"
    names = [name for name in _all_of(package / "__init__.py") if name not in ("forms", "policies", "__version__")]
    pages = {"ac2": _reference("ac2", "ac2", names)}
    pages["policies"] = "# ac2.policies\n\n::: ac2.policies\n    options: {show_root_heading: false, show_root_toc_entry: false}\n"
    pages["forms"] = "# ac2.forms\n\n::: ac2.forms\n    options: {show_root_heading: false, show_root_toc_entry: false}\n"
    modules = sorted(path.stem for path in (package / "integrations").glob("*.py") if not path.stem.startswith("_"))
    pages["integrations"] = "# ac2.integrations\n\n" + "\n".join(
        f"::: ac2.integrations.{name}\n    options: {{show_root_full_path: true}}\n" for name in modules
    )
    return pages


def _reference(title, module, names):
    root = f"::: {module}\n    options: {{members: false, show_root_heading: false, show_root_toc_entry: false}}\n"
    return f"# {title}\n\n{root}\n" + "\n".join(f"::: {module}.{name}\n" for name in names)


def _all_of(path):
    """What ``__all__`` lists."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and [getattr(target, "id", "") for target in node.targets] == ["__all__"]:
            return ast.literal_eval(node.value)
    raise ValueError(f"{path} has no __all__")
