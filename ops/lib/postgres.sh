# shellcheck shell=bash
# One PostgreSQL server of our own: made, started and stopped. Needs `common.sh`, `install.sh` and `process.sh`.
#
# - Runs as an unprivileged user, in a folder that this user can reach, on its own port and socket; never touches a server of the system.
# - Over TCP it speaks TLS only, and on loopback only. The socket is in a folder that nobody else can enter, and trusts who gets there.
# - Starting a server that runs, or stopping one that does not, changes nothing.

# The user that the server runs as: Debian's, if we are root, else ourselves.
postgres_user() {
    if is_root; then
        id -u postgres >/dev/null 2>&1 || die "there is no user postgres, though the package makes one"
        printf 'postgres\n'
    else
        id -un
    fi
}

# Runs a command as that user.
as_postgres() {
    if is_root; then
        (cd / && setpriv --reuid="$(postgres_user)" --regid="$(id -g postgres)" --init-groups -- env HOME=/ "$@")
    else
        "$@"
    fi
}

# Runs a command as that user, in the place that a function leads to: `as_postgres_within WITHIN COMMAND…`; without one where we are.
as_postgres_within() {
    local within="$1"
    shift
    if [[ -n $within ]] && is_root; then
        (cd / && "$within" setpriv --reuid="$(postgres_user)" --regid="$(id -g postgres)" --init-groups -- env HOME=/ "$@")
    else
        as_postgres "$@"
    fi
}

# Prints the folder for a server's data: within DIR where its user can reach that, else one of the system's: `postgres_folder DIR`.
postgres_folder() {
    local dir="$1"
    if ! is_root || as_postgres test -x "$dir" 2>/dev/null; then
        printf '%s/postgres\n' "$dir"
    else
        printf '/var/lib/holdfast/%s/postgres\n' "$(printf '%s' "$dir" | sha256sum | cut -c1-16)"
    fi
}

# Makes an empty cluster in FOLDER if there is none: `postgres_init FOLDER`.
postgres_init() {
    local folder="$1" bin
    bin="$(postgres_bin)" || die "no PostgreSQL of at least 15 under /usr/lib/postgresql"
    [[ ! -f $folder/data/PG_VERSION ]] || return 0
    if is_root; then
        install -d -m 0755 "$(dirname "$folder")"
        install -d -m 0700 -o postgres -g postgres "$folder" "$folder/socket" "$folder/tls"
    else
        install -d -m 0700 "$folder" "$folder/socket" "$folder/tls"
    fi
    # A cluster that was only half made is made anew.
    rm -rf "$folder/data.new"
    as_postgres "$bin/initdb" --pgdata "$folder/data.new" --username postgres --encoding UTF8 --locale C.UTF-8 \
        --auth-local trust --auth-host scram-sha-256 --data-checksums >"$folder/initdb.log" 2>&1 ||
        die "initdb failed: $(tail -n 5 "$folder/initdb.log")"
    as_postgres mv "$folder/data.new" "$folder/data"
}

# Writes the server's settings: `postgres_configure FOLDER PORT CERTIFICATE KEY CA`.
postgres_configure() {
    local folder="$1" port="$2" certificate="$3" key="$4" ca="$5"
    local owner=()
    if is_root; then owner=(-o postgres -g postgres); fi
    install -m 0644 "${owner[@]}" "$certificate" "$folder/tls/server.pem"
    install -m 0600 "${owner[@]}" "$key" "$folder/tls/server.key"
    install -m 0644 "${owner[@]}" "$ca" "$folder/tls/ca.pem"
    as_postgres tee "$folder/data/holdfast.conf" >/dev/null <<CONF
listen_addresses = '127.0.0.1'
port = $port
unix_socket_directories = '$folder/socket'
unix_socket_permissions = 0700
max_connections = 200
password_encryption = 'scram-sha-256'
ssl = on
ssl_min_protocol_version = 'TLSv1.3'
ssl_cert_file = '$folder/tls/server.pem'
ssl_key_file = '$folder/tls/server.key'
ssl_ca_file = '$folder/tls/ca.pem'
log_line_prefix = '%m [%p] %q%u@%d '
timezone = 'UTC'
CONF
    as_postgres tee "$folder/data/pg_hba.conf" >/dev/null <<'HBA'
# Whoever can enter the socket's folder is the server's own user or root.
local   all all trust
hostssl all all 127.0.0.1/32 scram-sha-256
HBA
    grep -q "^include 'holdfast.conf'" "$folder/data/postgresql.conf" ||
        as_postgres sh -c "printf \"%s\\n\" \"include 'holdfast.conf'\" >>\"\$1\"" sh "$folder/data/postgresql.conf"
}

# Gives the server the files that `holdfast-renderer init` made: `postgres_adopt FOLDER PORT INIT_FOLDER`.
postgres_adopt() {
    local folder="$1" port="$2" made="$3" owner=() name
    if is_root; then owner=(-o postgres -g postgres); fi
    for name in postgres.pem ca.pem holdfast.conf pg_hba.conf; do install -m 0644 "${owner[@]}" "$made/$name" "$folder/data/$name"; done
    install -m 0600 "${owner[@]}" "$made/postgres.key.pem" "$folder/data/postgres.key.pem"
    as_postgres tee "$folder/data/server.conf" >/dev/null <<CONF
listen_addresses = '127.0.0.1'
port = $port
unix_socket_directories = '$folder/socket'
unix_socket_permissions = 0700
max_connections = 200
log_line_prefix = '%m [%p] %q%u@%d '
timezone = 'UTC'
include 'holdfast.conf'
CONF
    grep -q "^include 'server.conf'" "$folder/data/postgresql.conf" ||
        as_postgres sh -c "printf \"%s\\n\" \"include 'server.conf'\" >>\"\$1\"" sh "$folder/data/postgresql.conf"
}

# Whether the server of FOLDER runs. One that was killed and that its parent has not taken note of does not, though a signal still finds it.
postgres_runs() {
    local pid
    as_postgres "$(postgres_bin)/pg_ctl" --pgdata "$1/data" status >/dev/null 2>&1 || return 1
    pid="$(postgres_pid "$1")" && ! process_gone "$pid"
}

# Prints the pid that the server of FOLDER wrote down, whether it runs or not: `postgres_pid FOLDER`.
postgres_pid() {
    as_postgres head -n 1 "$1/data/postmaster.pid" 2>/dev/null
}

# Starts the server and waits until it answers: `postgres_start FOLDER [WITHIN]`, WITHIN being a function that runs a command in another place.
postgres_start() {
    local folder="$1" within="${2:-}" pid
    ! postgres_runs "$folder" || return 0
    # No server starts beside what one left that a signal still finds.
    if pid="$(postgres_pid "$folder")" && process_gone "$pid"; then
        wait_until 10 process_reaped "$pid" ||
            die "PostgreSQL was killed and its parent does not take note of that (process $pid is a zombie).
  In a container, let an init be its first process (docker run --init); here and now: rm $folder/data/postmaster.pid"
    fi
    as_postgres_within "$within" "$(postgres_bin)/pg_ctl" --pgdata "$folder/data" --log "$folder/postgres.log" --wait --timeout 60 start >/dev/null 2>&1 </dev/null ||
        die "PostgreSQL does not start: $(as_postgres tail -n 5 "$folder/postgres.log" 2>&1)"
}

# Stops the server and waits until it is gone: `postgres_stop FOLDER`. Its last checkpoint waits for the disk, which others may keep busy.
postgres_stop() {
    local folder="$1"
    if [[ ! -d $folder/data ]] || ! postgres_runs "$folder"; then return 0; fi
    as_postgres "$(postgres_bin)/pg_ctl" --pgdata "$folder/data" --mode fast --wait --timeout 180 stop >/dev/null 2>&1 </dev/null ||
        die "PostgreSQL in $folder does not stop: $(as_postgres tail -n 5 "$folder/postgres.log" 2>&1)"
}

# Runs SQL as the owner of the cluster, by the socket: `postgres_sql FOLDER PORT SQL`.
postgres_sql() {
    as_postgres "$(postgres_bin)/psql" --no-psqlrc --quiet --tuples-only --no-align --set ON_ERROR_STOP=1 \
        --host "$1/socket" --port "$2" --username postgres --dbname postgres --command "$3"
}

# Runs a file of SQL as the owner of the cluster, by the socket: `postgres_script FOLDER PORT FILE`.
postgres_script() {
    as_postgres "$(postgres_bin)/psql" --no-psqlrc --quiet --set ON_ERROR_STOP=1 --host "$1/socket" --port "$2" --username postgres --dbname postgres \
        <"$3" >/dev/null || die "Postgres refuses $3"
}
