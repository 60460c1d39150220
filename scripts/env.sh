# shellcheck shell=bash disable=SC2164
# Sourced by the other scripts: where they run, and with which Java.
# zsh has no BASH_SOURCE; its $0 is the file that is read.
root="$(cd "$(dirname "${BASH_SOURCE[0]:-$0}")/.." && pwd)"
cd "$root"
if [[ -x .java/home/bin/java ]]; then
  export JAVA_HOME="$root/.java/home"
fi
