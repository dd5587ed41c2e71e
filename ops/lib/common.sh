# shellcheck shell=bash
# What every script under `ops/` starts from: where things are, how to speak, how to give up.
#
# - To be sourced after `set -euo pipefail`. Defines functions and the variables below; runs nothing else.
# - Words go to stderr and data to stdout.

HOLDFAST_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
# Tools and servers that this project fetches; outside the clone, so that a fresh clone is warm.
HOLDFAST_CACHE="${HOLDFAST_CACHE:-${XDG_CACHE_HOME:-${HOME:-/var/cache}/.cache}/holdfast}"
HOLDFAST_TOOLS="$HOLDFAST_CACHE/tools"
export HOLDFAST_ROOT HOLDFAST_CACHE HOLDFAST_TOOLS

# Says one line.
say() {
    printf '%s\n' "$*" >&2
}

# Says what went wrong and what to do, and ends the script.
die() {
    printf '\nerror: %s\n' "$*" >&2
    exit 1
}

# Says one heading.
heading() {
    printf '\n── %s\n' "$*" >&2
}

# Shows how far something is on one line of a terminal, which the next call replaces and an empty one clears; nothing without a terminal.
progress() {
    [[ ! -t 2 ]] || printf '\r\033[K%s' "$1" >&2
}

have() {
    command -v "$1" >/dev/null 2>&1
}

is_root() {
    [[ "$(id -u)" -eq 0 ]]
}

# Renders whole seconds as `1m07s`.
duration() {
    printf '%dm%02ds' "$(($1 / 60))" "$(($1 % 60))"
}

# Waits until a command succeeds, with a deadline: `wait_until SECONDS COMMAND…`.
wait_until() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < deadline)) || return 1
        sleep 0.1
    done
}
