#!/usr/bin/env bash
# Runs a program for aarch64: run.sh PROGRAM ARGUMENTS...
#
# On another machine qemu-aarch64 runs it, with the libraries of sysroot.sh. Programs for aarch64 that it starts itself
# run only where the kernel hands such programs to an emulator (Debian: qemu-user-static, binfmt-support). They get the
# same processor and libraries. Environment:
#   AC2_QEMU=neoverse-n1    the processor, as `qemu-aarch64 -cpu help` lists them
#   AC2_CACHE               as for sysroot.sh
set -euo pipefail
[ "$(uname -m)" != aarch64 ] || exec "$@"
command -v qemu-aarch64 >/dev/null || { echo "run.sh: no qemu-aarch64; install qemu-user" >&2; exit 1; }
# A test has another HOME, or none.
home="$(getent passwd "$(id -u)" | cut -d: -f6)"
export HOME="${HOME:-$home}"
AC2_CACHE="${AC2_CACHE:-${XDG_CACHE_HOME:-$home/.cache}/ac2}"
# shellcheck disable=SC1091
release="$(. /etc/os-release 2>/dev/null && echo "${VERSION_CODENAME:-}")"
sysroot="$AC2_CACHE/sysroot-aarch64-${release:-unknown}"
[ -e "$sysroot/.complete" ] || { echo "run.sh: no $sysroot; third_party/aarch64/sysroot.sh makes it" >&2; exit 1; }
# By the environment, which programs that it starts inherit.
export QEMU_CPU="${AC2_QEMU:-neoverse-n1}" QEMU_LD_PREFIX="$sysroot"
exec qemu-aarch64 "$@"
