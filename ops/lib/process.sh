# shellcheck shell=bash
# Long-lived processes by pid file: start, look, stop. Needs `common.sh`.
#
# - A pid file has a pid and the time that its process was started at, as the kernel tells it: a number that was given to another process since is
#   never signalled.
# - A started process keeps neither our terminal nor our pipes.

# Prints when a process was started, in ticks since boot: `start_ticks PID`.
start_ticks() {
    local line
    read -r line <"/proc/$1/stat" || return 1
    # The name of the program is in parentheses and may have blanks in it; the time is the twentieth field after it.
    line="${line##*) }"
    awk '{ print $20 }' <<<"$line"
}

# Prints the pid in a file if the very process still runs: `running_pid PIDFILE`.
running_pid() {
    local pid ticks
    [[ -r $1 ]] || return 1
    read -r pid ticks <"$1" || return 1
    [[ $pid =~ ^[0-9]+$ ]] || return 1
    ! process_gone "$pid" || return 1
    [[ "$(start_ticks "$pid" 2>/dev/null)" == "$ticks" ]] || return 1
    printf '%s\n' "$pid"
}

# Starts a command in the background, in a session of its own: `start_process PIDFILE LOG COMMAND…`.
start_process() {
    local pidfile="$1" log="$2"
    shift 2
    # The lock of whoever starts it ends with the start.
    setsid "$@" </dev/null >>"$log" 2>&1 9>&- &
    local pid=$!
    printf '%s %s\n' "$pid" "$(start_ticks "$pid")" >"$pidfile"
    disown "$pid"
}

# Ends the process of a pid file and waits until it is gone: `stop_process PIDFILE SECONDS`.
stop_process() {
    local pid
    if pid="$(running_pid "$1")"; then
        kill -TERM "$pid" 2>/dev/null || true
        if ! wait_until "$2" process_gone "$pid"; then
            say "process $pid of $1 did not end in $2 s after SIGTERM; killing it"
            kill -KILL "$pid" 2>/dev/null || true
            wait_until 10 process_gone "$pid" || die "process $pid of $1 cannot be ended"
        fi
    fi
    rm -f "$1"
}

# Makes sure that a service runs and answers: `ensure_service FOLDER NAME SECONDS HEALTHCHECK COMMAND…`, the health check being one word, a function
# or a program. Its pid file and log are FOLDER/NAME.pid and FOLDER/NAME.log; FOLDER/services keeps the order of the starts.
ensure_service() {
    local folder="$1" name="$2" seconds="$3" healthy="$4"
    shift 4
    if ! running_pid "$folder/$name.pid" >/dev/null; then
        grep -qxF -- "$name" "$folder/services" 2>/dev/null || printf '%s\n' "$name" >>"$folder/services"
        start_process "$folder/$name.pid" "$folder/$name.log" "$@"
    fi
    local deadline=$((SECONDS + seconds))
    until "$healthy" >/dev/null 2>&1; do
        running_pid "$folder/$name.pid" >/dev/null || die "$name ended: $(tail -n 5 "$folder/$name.log")"
        ((SECONDS < deadline)) || die "$name does not answer after $seconds s: $(tail -n 5 "$folder/$name.log")"
        sleep 0.1
    done
}

# Ends every service of a folder, the last started first: `stop_services FOLDER SECONDS`.
stop_services() {
    local folder="$1" seconds="$2" name names=()
    [[ -f $folder/services ]] || return 0
    mapfile -t names <"$folder/services"
    local at
    for ((at = ${#names[@]} - 1; at >= 0; at--)); do
        name="${names[at]}"
        stop_process "$folder/$name.pid" "$seconds"
    done
    rm -f "$folder/services"
}

# Whether a process has ended; one that only waits to be reaped has.
process_gone() {
    [[ ! -d /proc/$1 ]] || grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null
}

# Whether nothing is left of a process, not even its number.
process_reaped() {
    [[ ! -d /proc/$1 ]]
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
