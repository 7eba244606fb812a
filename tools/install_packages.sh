# Sourced by scripts that need packages of the distribution.
#
#   install_packages NAME "package: why it is needed"...
#
# installs those that are missing, as root or by sudo, and says so as NAME. Does nothing without dpkg, or if
# AC2_NO_INSTALL is set.

package_is_installed() {
  # Any pip will do.
  [ "$1" = python3-pip ] && "${PYTHON:-python3}" -m pip --version >/dev/null 2>&1 && return
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

install_packages() {
  local name="$1" missing=() entry
  shift
  [ -z "${AC2_NO_INSTALL:-}" ] && command -v dpkg-query >/dev/null || return 0
  for entry in "$@"; do
    if ! package_is_installed "${entry%%:*}"; then
      echo "$name: will install ${entry/:/,}" >&2
      missing+=("${entry%%:*}")
    fi
  done
  [ "${#missing[@]}" -gt 0 ] || return 0
  local as_root=(env DEBIAN_FRONTEND=noninteractive)
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "$name: not root and no sudo; install: ${missing[*]}" >&2; exit 1; }
    as_root=(sudo "${as_root[@]}")
  fi
  "${as_root[@]}" apt-get -qq update >&2
  "${as_root[@]}" apt-get -qq install -y --no-install-recommends "${missing[@]}" </dev/null >&2
}
