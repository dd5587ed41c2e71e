# shellcheck shell=bash
# Long-lived processes by pid file: start, look, stop. Needs `common.sh`.
#
# - A pid in a file is believed only while its command line still names the file that it was started with, so a reused number is never signalled.
# - A started process keeps neither our terminal nor our pipes.

# Prints the pid in a file if that process still runs with this word in its command line: `running_pid PIDFILE WORD`.
running_pid() {
    local pid
    [[ -r $1 ]] || return 1
    read -r pid <"$1" || return 1
    [[ $pid =~ ^[0-9]+$ && -r /proc/$pid/cmdline ]] || return 1
    tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qF -- "$2" || return 1
    printf '%s\n' "$pid"
}

# Starts a command in the background, in a session of its own: `start_process PIDFILE LOG COMMAND…`.
start_process() {
    local pidfile="$1" log="$2"
    shift 2
    setsid "$@" </dev/null >>"$log" 2>&1 &
    printf '%s\n' "$!" >"$pidfile"
    disown "$!"
}

# Ends the process of a pid file and waits until it is gone: `stop_process PIDFILE WORD SECONDS`.
stop_process() {
    local pid
    if pid="$(running_pid "$1" "$2")"; then
        kill -TERM "$pid" 2>/dev/null || true
        if ! wait_until "$3" process_gone "$pid"; then
            say "process $pid ($2) did not end in $3 s after SIGTERM; killing it"
            kill -KILL "$pid" 2>/dev/null || true
            wait_until 10 process_gone "$pid" || die "process $pid ($2) cannot be ended"
        fi
    fi
    rm -f "$1"
}

# Whether a process has ended; one that only waits to be reaped has.
process_gone() {
    [[ ! -d /proc/$1 ]] || grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null
}

# Prints a port of loopback that nobody listens on now, below the range that the kernel gives to clients.
free_port() {
    local port tries
    for ((tries = 0; tries < 100; tries++)); do
        port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
        if ! port_answers "$port"; then
            printf '%s\n' "$port"
            return 0
        fi
    done
    return 1
}

port_answers() {
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}
