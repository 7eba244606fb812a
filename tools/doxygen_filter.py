#!/usr/bin/env python3
"""Makes the comments of a public header Doxygen's, for docs/Doxyfile:   tools/doxygen_filter.py ac2/scope.h

Headers are written for people who read them, with plain // comments. The banner before #pragma once becomes the file's
text, a comment before a declaration is that declaration's, one behind it too, and lines indented by two or more are code.
Comments inside function bodies stay as they are.
"""

import re
import sys

COMMENT = re.compile(r"^( *)//( (?P<text>.*))?$")
TRAILING = re.compile(r"^(?P<code>[^\"]*?[;,{}\w)])  // (?P<text>(?!NOLINT|IWYU|namespace).*)$")
NOT_FOR_READERS = re.compile(r"^(NOLINT|IWYU|clang-format|---)")


def escape(text):
    """Nothing is a command, a tag or emphasis; `code` stays code."""
    parts = text.split("`")
    parts[::2] = [re.sub(r'"[^"]*"|[^"]+|"', escape_text, part) for part in parts[::2]]
    return "`".join(parts)


def escape_text(found):
    # Between quotation marks Doxygen takes no * for emphasis, and so no \* for one either.
    is_quoted = found.group().startswith('"')
    return re.sub(r"([@\\<>&#])" if is_quoted else r"([@\\<>&#*])", r"\\\1", found.group())


def convert_block(lines, indent, is_banner):
    out = []
    in_code = False
    for i, text in enumerate(lines):
        is_code = text.startswith("  ") and text.strip() != ""
        prefix = ""
        if is_code and not in_code:
            prefix = "@code{.cpp}\n"
        elif in_code and not is_code and text.strip():
            prefix = "@endcode\n"
        # Blank lines within code stay in it.
        in_code = is_code or (in_code and not text.strip())
        shown = text[2:] if is_code else text
        if not is_code:
            shown = escape(shown)
        head = "@file\n" if is_banner and i == 0 else ""
        out.append((head, prefix, shown))
    if in_code:
        head, prefix, shown = out[-1]
        out[-1] = (head, prefix, shown + "\n@endcode")
    body = "\n".join(head + prefix + shown for head, prefix, shown in out).replace("*/", "* /")
    return indent + "/** " + body + " */"


def main():
    source = open(sys.argv[1], encoding="utf-8").read().split("\n")
    out = []
    depth = []  # for each open brace, whether declarations stand in it
    i = 0
    while i < len(source):
        line = source[i]
        comment = COMMENT.match(line)
        declares = all(depth)
        if comment and declares and not NOT_FOR_READERS.match(comment.group("text") or ""):
            block = []
            while i < len(source) and (match := COMMENT.match(source[i])):
                block.append(match.group("text") or "")
                i += 1
            is_banner = not out
            follows_code = i < len(source) and source[i].strip() not in ("", "}", "};") and not is_banner
            if is_banner or follows_code:
                out.append(convert_block(block, comment.group(1), is_banner))
            else:
                out.extend("//" + text for text in block)
            continue
        trailing = TRAILING.match(line)
        if trailing and declares and not line.lstrip().startswith(("#", "}")):
            line = trailing.group("code") + "  ///< " + escape(trailing.group("text"))
        out.append(line)
        code = re.sub(r'"(\\.|[^"\\])*"|\'.\'|//.*', "", source[i])
        for j, c in enumerate(code):
            if c == "{":
                before = " ".join(source[max(0, i - 4):i]) + " " + code[:j]
                statement = re.split(r"[;{}]", before)[-1]
                depth.append(bool(re.search(r"\b(namespace|class|struct|enum)\b", statement))
                             and not re.search(r"\)\s*(const|noexcept|override|->.*)?\s*$", statement))
            elif c == "}" and depth:
                depth.pop()
        i += 1
    sys.stdout.write("\n".join(out))


if __name__ == "__main__":
    main()
