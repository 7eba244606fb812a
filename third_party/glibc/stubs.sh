#!/usr/bin/env bash
# Prints the directory of what to link with so that the result runs with glibc 2.28, which is that of manylinux_2_28 and of
# torch's own wheels:
#
#   third_party/glibc/stubs.sh
#
# In it are the C library's shared objects as the linker sees them (names and versions, no code), the two files with which a
# program starts, and libc_nonshared.a. The compiler Zig makes them from glibc's lists of symbols; it comes from PyPI, once
# (101 MB to download), and only what it made is kept, in ~/.cache/ac2. Safe to run twice or in parallel.
#
# libstdc++.so stands for two things: that library as GCC 8 had it (libstdcxx_stub.py), and, of GCC's static libstdc++, what the
# former lacks and the headers use, such as std::filesystem. So do the compilers of manylinux. Without it the linker finds some
# of that in LibTorch's libraries, one release of which has more of it than another.
#
# Rejected: a Debian with that glibc, because Debian 10 is no longer on Debian's mirrors, and 11 has 2.31.
# Environment: AC2_CACHE, PYTHON (default python3, which needs venv).
set -euo pipefail
here="$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)"
glibc=2.28
zig=0.17.1
elftools=0.33
machine="$(uname -m)"
cache="${AC2_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/ac2}"
dest="$cache/glibc-$glibc-$machine"
fail() {
  echo "glibc stubs: $*" >&2
  exit 1
}
compiler="$(g++ -print-file-name=libstdc++.a)"
wanted="$(echo "$compiler"; cat "${BASH_SOURCE[0]}" "$here/newer.c" "$here/libstdcxx_stub.py" | sha256sum)"
mkdir -p "$cache"
exec 9>"$dest.lock"
flock 9
if [ "$(cat "$dest/.complete" 2>/dev/null)" != "$wanted" ]; then
  echo "making stubs of glibc $glibc in $dest" >&2
  work="$(mktemp -d)"
  trap 'rm -rf "$work"' EXIT
  "${PYTHON:-python3}" -m venv "$work/environment"
  "$work/environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile \
    --only-binary=:all: "ziglang==$zig" "pyelftools==$elftools" >&2
  echo 'int main(void) { return 0; }' >"$work/main.c"
  export ZIG_GLOBAL_CACHE_DIR="$work/zig" ZIG_LOCAL_CACHE_DIR="$work/zig"
  for kind in -no-pie -pie; do  # crt1.o and Scrt1.o
    "$work/environment/bin/python" -m ziglang cc -target "$machine-linux-gnu.$glibc" "$kind" "$work/main.c" -o "$work/main" >&2
  done
  rm -rf "$dest.part"
  mkdir "$dest.part"
  for name in libc.so.6 libm.so.6 libpthread.so.0 libdl.so.2 librt.so.1 libld.so.2 libc_nonshared.a crt1.o Scrt1.o; do
    find "$work/zig" -name "$name" -exec cp {} "$dest.part/" \;
    [ -e "$dest.part/$name" ] || fail "zig $zig made no $name"
  done
  ln -s libm.so.6 "$dest.part/libm.so"
  gcc -O2 -fPIC -c "$here/newer.c" -o "$work/newer.o"
  # What was moved into libc.so.6 later is in libraries of its own, which today's compilers do not name.
  cat >"$dest.part/libc.so" <<END
GROUP ( $dest/libc.so.6 $dest/libc_nonshared.a
  AS_NEEDED ( $dest/libpthread.so.0 $dest/libdl.so.2 $dest/librt.so.1 $dest/libld.so.2 ) )
END
  "$work/environment/bin/python" "$here/libstdcxx_stub.py" "$(g++ -print-file-name=libstdc++.so.6)" "$dest.part"
  # By name: others have variables in them, such as the terminate handler, of which a program must have one.
  (cd "$work" && ar x "$compiler" fs_dir.o fs_ops.o fs_path.o functexcept.o lt5-sstream-inst.o snprintf_lite.o sstream-inst.o)
  ar qc "$dest.part/libac2_newer.a" "$work"/*.o
  echo "INPUT ( $dest/libstdc++.so.6 $dest/libac2_newer.a )" >"$dest.part/libstdc++.so"
  echo "$wanted" >"$dest.part/.complete"
  rm -rf "$dest"
  mv "$dest.part" "$dest"
fi
echo "$dest"
