#!/usr/bin/env bash
# The Python of sysroot.sh, Debian's for arm64, by run.sh.
here="$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
exec "$here/run.sh" "$("$here/sysroot.sh")/usr/bin/python3" "$@"
