#!/usr/bin/env bash
# Builds the reference of C++ with Doxygen into a folder (build/docs if none is given):   tools/docs.sh [FOLDER]
# Fails on any warning.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
# shellcheck source=tools/install_packages.sh
source tools/install_packages.sh
install_packages docs.sh "doxygen: builds the API reference"
folder="${1:-build/docs}"
mkdir -p "$folder"
{ cat docs/Doxyfile; echo "OUTPUT_DIRECTORY = \"$folder\""; } | doxygen -
echo "docs.sh: $folder/html/index.html"
