#!/bin/sh
# Writes the C++ file that the page of write_report() is compiled from:   embed_page.sh page/page.html page_parts.cc
#
# The files that page.html names, which lie beside it, stand in the places of their names, each as a raw string literal.
# Bazel and CMake call this. It needs nothing but sh, cat, grep and wc.
set -eu
folder="$(dirname "$1")"
open='R"ac2page('
close=')ac2page"'

for file in "$folder"/*.html "$folder"/*.css "$folder"/*.js; do
  if grep -qF "$close" "$file" || [ "$(wc -c <"$file")" -gt 65000 ]; then
    echo "embed_page.sh: $file has $close in it, or is longer than a compiler takes in one literal" >&2
    exit 1
  fi
done

# embed FILE ELEMENT, within an open literal
embed() {
  printf '<%s>\n%s,\n%s' "$2" "$close" "$open"
  cat "$folder/$1"
  printf '%s,\n%s</%s>\n' "$close" "$open" "$2"
}

{
  printf '%s\n\n' '#include "ac2/internal/report/page_parts.h"' 'namespace ac2::internal {'
  printf 'PageParts page_parts() {\n  return {.before_data = {%s' "$open"
  while IFS= read -r line; do
    case "$line" in
      '<link rel="stylesheet" href="'*)
        name="${line#*href=\"}"
        embed "${name%%\"*}" style
        ;;
      '<script src="'*)
        name="${line#*src=\"}"
        embed "${name%%\"*}" script
        ;;
      *' id="data"></script>')
        printf '%s%s},\n.after_data = {%s</script>\n' "${line%</script>}" "$close" "$open"
        ;;
      *) printf '%s\n' "$line" ;;
    esac
  done <"$1"
  printf '%s}};\n}\n\n}  // namespace ac2::internal\n' "$close"
} >"$2"
