# shellcheck shell=bash
# One nats-server of our own: configured, started and stopped. Needs `common.sh` and `process.sh`.
#
# - Listens on loopback, speaks TLS only, keeps JetStream's files in its folder.
# - Starting a server that runs, or stopping one that does not, changes nothing.

# Writes the server's configuration: `nats_configure FOLDER PORT CERTIFICATE KEY CA USERS`, where USERS is the text of the users' list.
nats_configure() {
    local folder="$1" port="$2" certificate="$3" key="$4" ca="$5" users="$6"
    install -d -m 0700 "$folder" "$folder/jetstream"
    (
        umask 077
        cat >"$folder/nats.conf" <<CONF
listen: "127.0.0.1:$port"
server_name: "holdfast-$port"
max_payload: 1MB
jetstream { store_dir: "$folder/jetstream", max_memory_store: 256MB, max_file_store: 8GB }
tls { cert_file: "$certificate", key_file: "$key", ca_file: "$ca", timeout: 5 }
authorization { users: [ $users ] }
CONF
    )
}

# Starts the server and waits until it is ready: `nats_start SERVER FOLDER`.
nats_start() {
    local server="$1" folder="$2"
    ! running_pid "$folder/nats.pid" >/dev/null || return 0
    "$server" --config "$folder/nats.conf" -t >"$folder/nats.log" 2>&1 || die "nats-server refuses its configuration: $(tail -n 3 "$folder/nats.log")"
    start_process "$folder/nats.pid" "$folder/nats.log" "$server" --config "$folder/nats.conf"
    wait_until 20 nats_is_ready "$folder" || die "nats-server does not start: $(tail -n 5 "$folder/nats.log")"
}

# Whether the server says that it is ready; its log is begun anew by every start.
nats_is_ready() {
    grep -q 'Server is ready' "$1/nats.log"
}

# Stops the server and waits until it is gone: `nats_stop FOLDER`.
nats_stop() {
    stop_process "$1/nats.pid" 20
}
