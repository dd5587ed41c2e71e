# shellcheck shell=bash
# One control plane on this machine: folders, keys, servers and services, each started when it is missing and waited for. Needs `common.sh`,
# `install.sh`, `process.sh`, `postgres.sh` and `plane_open`.
#
# - Everything of one plane is in one folder (Postgres may need another; it is written down): two planes in two folders do not touch.
# - All of it but one loopback port runs in the control namespace of the plane's lab, where ports are its own; that one port is chosen free, and kept.
# - Services get the environment that is written here and nothing of the caller's, but HOLDFAST_LOG and HOLDFAST_LOG_FORMAT.
# - Starting what runs changes nothing.

# Where services listen in the control namespace.
PLANE_POSTGRES_PORT=5432 PLANE_NATS_PORT=4222 PLANE_AGENTS_PORTS=(7443 7444) PLANE_OPERATORS_PORT=7080 PLANE_AUDIT_PORT=7081
PLANE_ADMIN_PORT=7090

# Says where things are, for the plane in a folder: `plane_open FOLDER`. Makes the folder.
plane_open() {
    local path
    path="$(realpath -m -- "$1")"
    # A socket's path has room for 107 bytes.
    ((${#path} <= 80)) || die "the path $path is too long for the sockets in it; clone to a shorter one, or name a folder in HOLDFAST_STATE"
    install -d -m 0755 "$path"
    PLANE="$path"
    PLANE_KEYS="$PLANE/keys" PLANE_RUN="$PLANE/run" PLANE_LAB="$PLANE/lab" PLANE_DOCUMENTS="$PLANE/documents" PLANE_TOKENS="$PLANE/tokens"
    PLANE_BIN="${CARGO_TARGET_DIR:-$HOLDFAST_ROOT/target}/release"
    [[ $PLANE_BIN == /* ]] || PLANE_BIN="$HOLDFAST_ROOT/$PLANE_BIN"
}

# Takes the binaries that the plane was started with, where this shell's build folder has none: to end a plane, CARGO_TARGET_DIR need not be known.
plane_binaries_of_start() {
    local bin
    bin="$(plane_value BIN)"
    [[ -x $PLANE_BIN/holdfast-lab || -z $bin ]] || PLANE_BIN="$bin"
}

# Makes sure that there is something to start.
plane_binaries_are_there() {
    local name
    for name in holdfast holdfast-lab holdfast-agent holdfast-renderer holdfast-gateway holdfast-audit; do
        [[ -x $PLANE_BIN/$name ]] ||
            die "there is no $PLANE_BIN/$name: leave HOLDFAST_BUILD out, or name the folder that was built in by CARGO_TARGET_DIR"
    done
    plane_remember BIN "$PLANE_BIN"
}

# Lets one command at a time work on the plane.
plane_lock() {
    while :; do
        exec 9<>"$PLANE/lock"
        if ! flock -n 9; then
            say "waiting for another run that works on $PLANE (pid $(cat "$PLANE/lock" 2>/dev/null), up to 15 minutes)"
            flock -w 900 9 || die "another run works on $PLANE: pid $(cat "$PLANE/lock" 2>/dev/null)"
        fi
        # A run that wiped the plane took the file away: whoever waited for it has a lock on nothing.
        [[ ! $PLANE/lock -ef /proc/$$/fd/9 ]] || break
        exec 9>&-
        install -d -m 0755 "$PLANE"
    done
    printf '%s\n' "$$" >"$PLANE/lock"
}

# Prints a value that was written down, or nothing: `plane_value NAME`.
plane_value() {
    [[ -f $PLANE/plane.env ]] || return 0
    sed -n "s|^$1=||p" "$PLANE/plane.env"
}

# Writes a value down: `plane_remember NAME VALUE`.
plane_remember() {
    { grep -v "^$1=" "$PLANE/plane.env" 2>/dev/null || true; printf '%s=%s\n' "$1" "$2"; } >"$PLANE/plane.env.new"
    mv "$PLANE/plane.env.new" "$PLANE/plane.env"
}

lab() {
    "$PLANE_BIN/holdfast-lab" --lab "$PLANE_LAB" "$@" 9>&-
}

in_control() {
    lab exec @control -- "$@"
}

# Builds the binaries with optimisation; cargo shows how far it is.
plane_build() {
    (cd "$HOLDFAST_ROOT" && cargo build --locked --release --workspace --bins </dev/null >&2) || die "the binaries do not build (cargo's words are above)"
}

# Prints the first address of a family that the control plane has in the lab: `control_address 4|6`.
control_address() {
    in_control ip -o "-$1" address show scope global | awk '{ sub("/.*", "", $4); print $4; exit }'
}

# Makes keys, certificates and the servers' configurations, for the addresses of the control namespace.
plane_keys() {
    local address names=()
    for address in "$(control_address 4)" "$(control_address 6)"; do
        [[ -z $address ]] || names+=(--gateway-agents-name "$address" --gateway-operators-name "$address")
    done
    # The folders below are their owners' alone; this one holds what is public too.
    install -d -m 0755 "$PLANE_KEYS"
    env -i "$PLANE_BIN/holdfast-renderer" init --dir "$PLANE_KEYS" "${names[@]}" >"$PLANE/init.json" 2>"$PLANE/init.log" ||
        die "keys and certificates cannot be made: $(tail -n 3 "$PLANE/init.log")"
}

# Starts Postgres with the files that `init` made: roles come by client certificate, its own user by the socket.
plane_postgres() {
    local folder made
    folder="$(plane_value POSTGRES_FOLDER)"
    if [[ -z $folder ]]; then
        folder="$(postgres_folder "$PLANE")"
        plane_remember POSTGRES_FOLDER "$folder"
    fi
    postgres_init "$folder"
    if ! postgres_runs "$folder"; then
        postgres_adopt "$folder" "$PLANE_POSTGRES_PORT" "$PLANE_KEYS/postgres"
        postgres_start "$folder" in_control
    fi
    made="$(postgres_sql "$folder" "$PLANE_POSTGRES_PORT" "select count(*) from pg_database where datname = 'holdfast'")"
    [[ $made == 1 ]] || postgres_script "$folder" "$PLANE_POSTGRES_PORT" "$PLANE_KEYS/postgres/bootstrap.sql"
}

# Starts nats-server with the file that `init` made.
plane_nats() {
    local server
    server="${HOLDFAST_NATS_SERVER:-$(ensure_nats_server)}"
    install -d -m 0700 "$PLANE/nats"
    cat >"$PLANE_KEYS/nats/server.conf" <<CONF
listen: "127.0.0.1:$PLANE_NATS_PORT"
server_name: "holdfast"
jetstream { store_dir: "$PLANE/nats", max_memory_store: 256MB, max_file_store: 8GB }
include "holdfast.conf"
CONF
    # The paths in that file are seen from the folder that the server is started in.
    ensure_service "$PLANE_RUN" nats 30 nats_answers \
        "${IN_CONTROL[@]}" env -i -C "$PLANE_KEYS/nats" "$server" --config server.conf
}

nats_answers() {
    in_control bash -c "exec 3<>/dev/tcp/127.0.0.1/$PLANE_NATS_PORT"
}

# Prints the address of the database for a role whose certificate is in a folder of the keys: `database_url FOLDER ROLE`.
database_url() {
    local keys="$PLANE_KEYS/$1"
    printf 'postgres://%s@127.0.0.1:%s/holdfast?sslrootcert=%s&sslcert=%s&sslkey=%s\n' \
        "$2" "$PLANE_POSTGRES_PORT" "$keys/ca.pem" "$keys/$2.pem" "$keys/$2.key.pem"
}

# Says how each service is run: one array a service, to which its sub-command is added.
plane_services() {
    local v4 gateways=() port
    IN_CONTROL=("$PLANE_BIN/holdfast-lab" --lab "$PLANE_LAB" exec @control --)
    local run=("${IN_CONTROL[@]}" env -i "PATH=$PATH" "HOLDFAST_LOG=${HOLDFAST_LOG:-info}" "HOLDFAST_LOG_FORMAT=${HOLDFAST_LOG_FORMAT:-text}")
    local nats="HOLDFAST_NATS_URL=tls://127.0.0.1:$PLANE_NATS_PORT"
    v4="$(control_address 4)"
    for port in "${PLANE_AGENTS_PORTS[@]}"; do gateways+=("$v4:$port"); done
    PLANE_GATEWAYS="$(IFS=,; printf '%s' "${gateways[*]}")"

    MIGRATE=("${run[@]}" "HOLDFAST_DATABASE_URL=$(database_url migrate holdfast_owner)" "HOLDFAST_IDENTITY=$PLANE_KEYS/migrate"
        "$PLANE_BIN/holdfast-renderer")
    RENDERER=("${run[@]}" "$nats" "HOLDFAST_DATABASE_URL=$(database_url renderer holdfast_renderer)" "HOLDFAST_IDENTITY=$PLANE_KEYS/renderer"
        "HOLDFAST_ADMIN_LISTEN=127.0.0.1:$PLANE_ADMIN_PORT" "$PLANE_BIN/holdfast-renderer")
    AUDIT=("${run[@]}" "$nats" "HOLDFAST_IDENTITY=$PLANE_KEYS/audit" "HOLDFAST_DATA=$PLANE/audit" "HOLDFAST_LISTEN=127.0.0.1:$PLANE_AUDIT_PORT"
        "HOLDFAST_ADMIN_LISTEN=127.0.0.1:$((PLANE_ADMIN_PORT + 1))" "$PLANE_BIN/holdfast-audit")
    local agents=("${run[@]}" "$nats" HOLDFAST_DOORS=agents "HOLDFAST_AGENTS_IDENTITY=$PLANE_KEYS/gateway-agents"
        "HOLDFAST_AGENTS_DATABASE_URL=$(database_url gateway-agents holdfast_gateway_agents)" "HOLDFAST_AGENTS_GATEWAYS=$PLANE_GATEWAYS")
    AGENTS_1=("${agents[@]}" "HOLDFAST_AGENTS_LISTEN=0.0.0.0:${PLANE_AGENTS_PORTS[0]}" "HOLDFAST_ADMIN_LISTEN=127.0.0.1:$((PLANE_ADMIN_PORT + 2))"
        "$PLANE_BIN/holdfast-gateway")
    AGENTS_2=("${agents[@]}" "HOLDFAST_AGENTS_LISTEN=0.0.0.0:${PLANE_AGENTS_PORTS[1]}" "HOLDFAST_ADMIN_LISTEN=127.0.0.1:$((PLANE_ADMIN_PORT + 3))"
        "$PLANE_BIN/holdfast-gateway")
    OPERATORS=("${run[@]}" "$nats" HOLDFAST_DOORS=operators "HOLDFAST_OPERATORS_IDENTITY=$PLANE_KEYS/gateway-operators"
        "HOLDFAST_OPERATORS_DATABASE_URL=$(database_url gateway-operators holdfast_gateway_operators)"
        "HOLDFAST_OPERATORS_LISTEN=127.0.0.1:$PLANE_OPERATORS_PORT" "HOLDFAST_OPERATORS_AUDIT_URL=https://127.0.0.1:$PLANE_AUDIT_PORT"
        "HOLDFAST_ADMIN_LISTEN=127.0.0.1:$((PLANE_ADMIN_PORT + 4))" "$PLANE_BIN/holdfast-gateway")
}

renderer_ready() { "${RENDERER[@]}" healthcheck; }
audit_ready() { "${AUDIT[@]}" healthcheck; }
agents_1_ready() { "${AGENTS_1[@]}" healthcheck; }
agents_2_ready() { "${AGENTS_2[@]}" healthcheck; }
operators_ready() { "${OPERATORS[@]}" healthcheck; }

# Brings the database to the form of this build.
plane_migrate() {
    "${MIGRATE[@]}" migrate >"$PLANE_RUN/migrate.log" 2>&1 9>&- || die "the database cannot be migrated: $(tail -n 5 "$PLANE_RUN/migrate.log")"
}

# Starts the services that do not run, and waits until each says that it is ready.
plane_start() {
    install -d -m 0700 "$PLANE_RUN" "$PLANE/audit" "$PLANE_TOKENS"
    plane_services
    plane_postgres
    plane_nats
    plane_migrate
    ensure_service "$PLANE_RUN" renderer 60 renderer_ready "${RENDERER[@]}" run
    ensure_service "$PLANE_RUN" audit 60 audit_ready "${AUDIT[@]}" run
    ensure_service "$PLANE_RUN" gateway-agents-1 60 agents_1_ready "${AGENTS_1[@]}" run
    ensure_service "$PLANE_RUN" gateway-agents-2 60 agents_2_ready "${AGENTS_2[@]}" run
    ensure_service "$PLANE_RUN" gateway-operators 60 operators_ready "${OPERATORS[@]}" run
    plane_publish
}

# Carries the operators' API to a loopback port of this machine.
plane_publish() {
    local port
    port="$(plane_value API_PORT)"
    if [[ -z $port ]] || { ! running_pid "$PLANE_RUN/publish.pid" >/dev/null && port_answers "$port"; }; then
        port="$(free_port)" || die "no free port on loopback"
        plane_remember API_PORT "$port"
    fi
    API_PORT="$port"
    ensure_service "$PLANE_RUN" publish 20 api_answers \
        "$PLANE_BIN/holdfast-lab" --lab "$PLANE_LAB" publish "127.0.0.1:$port=127.0.0.1:$PLANE_OPERATORS_PORT"
}

api_answers() {
    port_answers "$API_PORT"
}

# Makes the first API token, once.
plane_token() {
    local file="$PLANE_TOKENS/admin"
    [[ ! -s $file ]] || return 0
    (umask 077 && "${OPERATORS[@]}" admin-token >"$file.new" 2>"$PLANE_RUN/admin-token.log" 9>&-) ||
        die "no API token can be made: $(tail -n 3 "$PLANE_RUN/admin-token.log")"
    mv "$file.new" "$file"
}

# Lets those use the command line who may: public files are everybody's to read, the first token is also the user's who ran this by sudo.
plane_share() {
    chmod 0755 "$PLANE_KEYS" "$PLANE_KEYS/public"
    chmod 0644 "$PLANE/env"
    [[ ${SUDO_UID:-} =~ ^[0-9]+$ && ${SUDO_GID:-} =~ ^[0-9]+$ ]] || return 0
    chown "$SUDO_UID:$SUDO_GID" "$PLANE_TOKENS" "$PLANE_TOKENS/admin"
}

# Ends the services and the servers, the last started first. What they keep on disk stays.
plane_stop() {
    local folder
    stop_services "$PLANE_RUN" 30
    folder="$(plane_value POSTGRES_FOLDER)"
    [[ -z $folder ]] || postgres_stop "$folder"
}

# Removes all that the plane keeps on disk.
plane_wipe() {
    local folder
    folder="$(plane_value POSTGRES_FOLDER)"
    if [[ -n $folder ]]; then
        rm -rf "$folder"
        case "$folder" in
            /var/lib/holdfast/*) rmdir --ignore-fail-on-non-empty "$(dirname "$folder")" /var/lib/holdfast ;;
        esac
    fi
    rm -rf "$PLANE_KEYS" "$PLANE_RUN" "$PLANE_LAB" "$PLANE_DOCUMENTS" "$PLANE_TOKENS" "$PLANE/nats" "$PLANE/audit"
    rm -f "$PLANE"/{plane.env,env,init.json,init.log,lock}
    rmdir --ignore-fail-on-non-empty "$PLANE"
}
